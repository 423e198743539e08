// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/inspect.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/backends/index_output.hpp"
#include "harness/command_line/usage_error.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/folder.hpp"
#include "harness/files/numpy_file.hpp"
#include "harness/files/output_file.hpp"
#include "harness/heads/head.hpp"
#include "harness/heads/head_source.hpp"
#include "harness/text/printable.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/io/checkpoint_head.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/storage/value_at.hpp"
#include "topksoftmax/top_k.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  std::filesystem::path file;
  HeadSource head;  ///< no file: none is compared with
  bool verify = false;
  std::filesystem::path json;  ///< empty: none is written
};

using Json = nlohmann::ordered_json;

/// The value of a key, or "-".
std::string value_of(const SafetensorsFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "-" : found->second;
}

bool is_index(const SafetensorsFile& file) {
  return file.metadata().contains("kind") && file.metadata().contains("format_version");
}

/// A head file, or why it is none.
struct OpenedHead {
  std::optional<HeadFile> head;
  std::string reason;
};

OpenedHead open_head(const std::filesystem::path& path) {
  try {
    return {.head = HeadFile::open(path), .reason = {}};
  } catch (const Error& error) {
    return {.head = std::nullopt, .reason = error.what()};
  }
}

/// How far off log Z was on held-out contexts; nothing where that was not learned, or with another effort.
std::optional<LogZError> log_z_error_in(const SafetensorsFile& file) {
  if (!file.contains(OutsideMass::kError) || file.metadata().contains("effort")) return std::nullopt;
  const TensorView& error = file.tensor(OutsideMass::kError);
  if (error.type != DataType::float64 || error.bytes.size() < 2 * sizeof(double)) return std::nullopt;
  return LogZError{.median = detail::value_at<double>(error.bytes.data(), 0),
                   .p99 = detail::value_at<double>(error.bytes.data(), 1)};
}

void print_index(const SafetensorsFile& file, std::ostream& out, Json& json) {
  out << "an index of kind " << printable(value_of(file, "kind")) << ", format version "
      << printable(value_of(file, "format_version")) << "\nlayer: V = " << printable(value_of(file, "vocab"))
      << ", d = " << printable(value_of(file, "dim")) << ", " << printable(value_of(file, "dtype"))
      << ", hash " << printable(value_of(file, "layer_hash"))
      << "\nchecksum: " << printable(value_of(file, "checksum")) << '\n';
  if (file.metadata().contains("effort")) {
    out << "effort: " << printable(value_of(file, "effort")) << ", of queries that name none\n";
  }
  const std::optional<LogZError> error = log_z_error_in(file);
  if (error) {
    out << "log Z: off by " << fixed(error->median, 4) << " nats in the median of held-out contexts, by "
        << fixed(error->p99, 3) << " in their 99th percentile\n";
  }
  json["is"] = "index";
  if (error) json["log_z_error"] = {{"median", error->median}, {"p99", error->p99}};
  json["metadata"] = file.metadata();
  constexpr std::string_view option = "options.";
  for (const auto& [key, value] : file.metadata()) {  // with those of the index within this one
    const bool own = key.starts_with(option);
    if (!own && key.find('.') == std::string::npos) continue;
    out << printable(own ? key.substr(option.size()) : key) << " = " << printable(value) << '\n';
  }
}

/// What a layer makes of products, a line each; nothing where it leaves them.
void print_transform(const LogitTransform& transform, std::ostream& out) {
  if (transform.scale != 1.0F) out << "logits are multiplied by " << transform.scale << '\n';
  if (transform.soft_cap != 0.0F) out << "soft cap of logits: " << transform.soft_cap << '\n';
}

void print_head(const SafetensorsFile& file, const HeadFile& head, std::ostream& out, Json& json) {
  const std::string_view type = data_type_name(file.tensor("weight").type);
  out << "a head file: " << printable(head.name()) << "\nlayer: V = " << head.vocab()
      << ", d = " << head.dim() << ", " << type
      << (file.contains("bias") ? ", with a bias" : ", without a bias") << '\n';
  print_transform(head.transform(), out);
  out << "contexts: " << head.train_count() << " to learn from, " << head.test_count()
      << " to judge on\ncounts: " << (file.contains("counts") ? "of every token" : "none") << '\n';
  if (file.metadata().contains("provenance")) {
    out << "provenance: " << printable(value_of(file, "provenance")) << '\n';
  }
  json.update({{"is", "head"},
               {"name", head.name()},
               {"vocab", head.vocab()},
               {"dim", head.dim()},
               {"type", type},
               {"bias", file.contains("bias")},
               {"train", head.train_count()},
               {"test", head.test_count()},
               {"metadata", file.metadata()}});
}

/// The output layer of a model.
struct ModelHead {
  std::string format;
  std::string name;
  std::string weight;
  std::string bias;      ///< empty: none
  std::string d2t = {};  ///< empty: row i is token i
  std::string type;
  bool tied = false;
  std::vector<std::size_t> shape;
  LogitTransform transform;
};

void print_model(const ModelHead& head, std::ostream& out, Json& json) {
  out << head.format << ": " << printable(head.name) << "\nlayer: " << printable(head.weight) << ' '
      << shape_text(head.shape) << ", " << head.type << (head.tied ? ", tied to the embedding" : "")
      << (head.bias.empty() ? ", without a bias" : ", with the bias " + printable(head.bias)) << '\n';
  if (!head.d2t.empty()) out << "rows are tokens of the model by " << printable(head.d2t) << '\n';
  print_transform(head.transform, out);
  json.update({{"is", "model"},
               {"name", head.name},
               {"weight", head.weight},
               {"bias", head.bias},
               {"d2t", head.d2t},
               {"type", head.type},
               {"shape", head.shape},
               {"tied", head.tied},
               {"logit_scale", head.transform.scale},
               {"soft_cap", head.transform.soft_cap}});
}

ModelHead head_in(const ModelCheckpoint& model) {
  const CheckpointHead head = find_checkpoint_head(model.tensors, model.config);
  const TensorView& weight = model.tensors.tensor(head.weight);
  return {.format = "a model as Transformers save it",
          .name = model.name,
          .weight = head.weight,
          .bias = head.bias,
          .d2t = head.d2t,
          .type = std::string(data_type_name(weight.type)),
          .tied = head.tied,
          .shape = weight.shape,
          .transform = model.config.transform};
}

ModelHead head_in(const GgufFile& file) {
  const GgufHead head = find_gguf_head(file);
  return {.format = "a model in GGUF",
          .name = head.name,
          .weight = head.weight.name,
          .bias = head.bias ? head.bias->name : "",
          .d2t = head.d2t ? head.d2t->name : "",
          .type = ggml_type_name(head.weight.type),
          .tied = head.tied,
          .shape = head.weight.shape,
          .transform = head.transform};
}

template <class File>
void print_tensors(const File& file, std::ostream& out, Json& json) {
  Table table({"tensor", "type", "shape", "bytes", ""});
  const std::size_t count = file.tensors().size();
  std::size_t bytes = 0;
  for (const TensorView& tensor : file.tensors()) {
    table.add({printable(tensor.name), std::string(data_type_name(tensor.type)), shape_text(tensor.shape),
               std::to_string(tensor.bytes.size()), ""});
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", data_type_name(tensor.type)},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes.size()}});
    bytes += tensor.bytes.size();
  }
  out << '\n';
  if (count > 0) table.print(out);
  out << count << (count == 1 ? " tensor, " : " tensors, ") << bytes << " bytes; the file has "
      << std::filesystem::file_size(file.path()) << '\n';
}

/// Loads the index for the head's layer. Throws Error where it does not fit.
void check_fit(const SafetensorsFile& index, const HeadSource& source, const Registry& registry,
               std::ostream& out) {
  const Head head = load_head(source);
  load_index_for(head.layer, index.path(), registry, {.layer_check = LayerCheck::whole});
  out << "fits the layer of " << source.head.string() << ", as " << value_of(index, "dtype") << '\n';
}

/// A safetensors file: an index, a head, a model or any other.
void print_safetensors(const Request& request, const Registry& registry, std::ostream& out, Json& json) {
  const SafetensorsFile file = SafetensorsFile::open(request.file);
  const auto [head, reason] = open_head(request.file);
  out << request.file.string() << ": ";
  if (is_index(file)) {
    print_index(file, out, json);
  } else if (head) {
    print_head(file, *head, out, json);
  } else {
    out << "a safetensors file, neither an index nor a head file\n";
    if (file.contains("weight")) out << "no head file because " << printable(reason) << '\n';
    json["is"] = "safetensors";
  }
  print_tensors(file, out, json);
  if (request.verify) {
    verify_index(request.file);
    out << "the checksum holds\n";
    json["checksum_holds"] = true;
  }
  if (!request.head.head.empty()) {
    check_fit(file, request.head, registry, out);
    json["fits"] = true;
  }
}

/// NumPy's arrays, which --head and --contexts take.
void print_numpy(const NumpyFile& file, std::ostream& out, Json& json) {
  const std::size_t count = file.tensors().size();
  out << file.path().string() << ": " << (count == 1 ? "an array" : "arrays") << " of NumPy's\n";
  json["is"] = "numpy";
  print_tensors(file, out, json);
}

void run_inspect(const Request& request, const Invocation& invocation) {
  std::ostream& out = text_output({request.json}, invocation);
  check_distinct(std::array{NamedFile{"--json", request.json}},
                 std::array{NamedFile{"FILE", request.file}, NamedFile{"--head", request.head.head}});
  const bool has_head = !request.head.head.empty();
  if (!has_head && !(request.head.tensor.empty() && request.head.bias.empty())) {
    throw UsageError("--tensor and --bias need --head");
  }
  Json json = {{"file", request.file.string()}};
  const bool is_model = is_folder(request.file) || request.file.extension() == ".json";
  const bool is_numpy = !is_model && NumpyFile::recognises(request.file);
  if (!is_model && !is_numpy && !GgufFile::recognises(request.file)) {
    print_safetensors(request, invocation.registry, out, json);
  } else if (request.verify || has_head) {
    throw UsageError("--verify and --head need an index; " + request.file.string() +
                     (is_numpy ? " has arrays of NumPy's" : " is a model"));
  } else if (is_numpy) {
    print_numpy(NumpyFile::open(request.file), out, json);
  } else {
    const ModelHead head =
        is_model ? head_in(open_model_checkpoint(request.file)) : head_in(GgufFile::open(request.file));
    out << request.file.string() << ": ";
    print_model(head, out, json);
  }
  out.flush();
  if (!request.json.empty()) write_json(request.json, json);
}

}  // namespace

Action declare_inspect(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  app.add_option(
         "file", request->file,
         "A safetensors file (an index, a head, any other), a model's folder, a GGUF file, .npy or .npz")
      ->check(file_name())
      ->type_name("FILE")
      ->required();
  app.add_flag("--verify", request->verify, "Read all of an index and compare its checksum");
  app.add_option("--head", request->head.head,
                 "A head, as the other commands take it: whether the index is for its layer")
      ->check(file_name())
      ->type_name("FILE");
  declare_tensors(app, request->head);
  app.add_option("--json", request->json, "Write the same to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
  return [request](const Invocation& invocation) { run_inspect(*request, invocation); };
}

}  // namespace topksoftmax::bench
