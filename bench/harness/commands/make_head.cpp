// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/make_head.hpp"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "harness/command_line/validators.hpp"
#include "harness/heads/synthetic_head.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  SyntheticHeadOptions head;
  std::string type = "f32";
  std::filesystem::path out;
};

/// A matrix in the type that it is stored in.
template <class Weight>
using Stored = Eigen::Matrix<Weight, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Weight>
TensorView view(const std::string& name, DataType type, const Stored<Weight>& values) {
  return {.name = name,
          .type = type,
          .shape = {static_cast<std::size_t>(values.rows()), static_cast<std::size_t>(values.cols())},
          .bytes = std::as_bytes(std::span(values.data(), static_cast<std::size_t>(values.size())))};
}

/// The command that writes the same head, but for the file's name.
std::string command_of(const Request& request) {
  const SyntheticHeadOptions& head = request.head;
  return "topksoftmax make-head --vocab " + std::to_string(head.vocab) + " --dim " +
         std::to_string(head.dim) + " --train " + std::to_string(head.train_contexts) + " --test " +
         std::to_string(head.test_contexts) + " --alpha " + detail::number_text(head.alpha) + " --seed " +
         std::to_string(head.seed) + " --type " + request.type;
}

template <class Weight>
void write_head(const Request& request, DataType type, const SyntheticHead& head) {
  const Stored<Weight> weight = head.weight.cast<Weight>();
  const TensorView tensors[] = {view("weight", type, weight),
                                view<float>("contexts.train", DataType::float32, head.train),
                                view<float>("contexts.test", DataType::float32, head.test)};
  write_safetensors(
      request.out, tensors,
      {{"name", "synthetic " + std::to_string(request.head.vocab) + " x " + std::to_string(request.head.dim) +
                    ", alpha " + detail::number_text(request.head.alpha)},
       {"provenance", command_of(request)}});
}

void run_make_head(const Request& request, std::ostream& out, Progress& progress) {
  check_target(request.out);
  progress.show("drawing rows and contexts");
  const SyntheticHead head = make_synthetic_head(request.head);
  progress.show("writing " + request.out.string());
  if (request.type == "f32") {
    write_head<float>(request, DataType::float32, head);
  } else if (request.type == "f16") {
    write_head<Eigen::half>(request, DataType::float16, head);
  } else {
    write_head<Eigen::bfloat16>(request, DataType::bfloat16, head);
  }
  progress.clear();
  out << request.out.string() << ": a synthetic head, V = " << request.head.vocab
      << ", d = " << request.head.dim << ", " << request.type
      << ", alpha = " << detail::number_text(request.head.alpha) << ", " << request.head.train_contexts
      << " training and " << request.head.test_contexts << " test contexts\n";
}

}  // namespace

Action declare_make_head(CLI::App& app) {
  constexpr std::uint64_t kMost = 1U << 24;
  const auto request = std::make_shared<Request>();
  const auto size = [&app](const char* name, std::size_t& value, const char* help) {
    app.add_option(name, value, help)->check(whole_number(1, kMost))->type_name("N")->capture_default_str();
  };
  size("--vocab", request->head.vocab, "Tokens, V");
  size("--dim", request->head.dim, "The contexts' dimension, d");
  size("--train", request->head.train_contexts, "Contexts to learn from");
  size("--test", request->head.test_contexts, "Contexts to measure on");
  app.add_option("--alpha", request->head.alpha,
                 "How fast the contexts' energy falls, 1/i^alpha; smaller is harder")
      ->check(number(0.0, 10.0))
      ->type_name("ALPHA")
      ->capture_default_str();
  app.add_option("--seed", request->head.seed,
                 "Of the random numbers: each seed gives another head of the same kind")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--type", request->type, "What weights are stored in")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--out", request->out, "The head file to write")
      ->check(file_name())
      ->type_name("HEAD")
      ->required();
  return [request](const Invocation& invocation) {
    run_make_head(*request, invocation.out, invocation.progress);
  };
}

}  // namespace topksoftmax::bench
