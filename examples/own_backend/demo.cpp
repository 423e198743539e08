// SPDX-License-Identifier: Apache-2.0
//
// What a backend of one's own can do once it is described: mine-demo [FOLDER TO WRITE TO]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <topksoftmax/certified/description.hpp>
#include <topksoftmax/evaluation/tune.hpp>
#include <topksoftmax/io/index_file.hpp>
#include <topksoftmax/io/safetensors.hpp>
#include <topksoftmax/registry/exhaustive_descriptions.hpp>

#include "mine.hpp"

using namespace topksoftmax;

namespace {

constexpr Eigen::Index kVocab = 2000;
constexpr Eigen::Index kDim = 32;

void require(bool holds, const char* what) {
  std::printf("%-72s %s\n", what, holds ? "yes" : "NO");
  if (!holds) throw std::runtime_error(what);
}

/// A layer in which some tokens are likelier than others, and contexts of a few topics: some to learn from,
/// others to be judged on.
struct World {
  RowMajorMatrix W = RowMajorMatrix::Random(kVocab, kDim);
  Eigen::VectorXf b = Eigen::VectorXf::LinSpaced(kVocab, 6.0F, -6.0F);
  RowMajorMatrix topics = RowMajorMatrix::Random(6, kDim);
  RowMajorMatrix train = RowMajorMatrix::Random(600, 6) * topics;
  RowMajorMatrix test = RowMajorMatrix::Random(200, 6) * topics;
};

/// A file for the harness: mine-bench --head FILE.
void write_head(const std::filesystem::path& path, const World& world) {
  const auto tensor = [](const char* name, const RowMajorMatrix& values) {
    return tensor_view(name,
                       {static_cast<std::size_t>(values.rows()), static_cast<std::size_t>(values.cols())},
                       std::span(values.data(), static_cast<std::size_t>(values.size())));
  };
  const TensorView tensors[] = {
      tensor("weight", world.W), tensor("contexts.train", world.train), tensor("contexts.test", world.test),
      tensor_view("bias", {kVocab}, std::span(world.b.data(), static_cast<std::size_t>(kVocab)))};
  write_safetensors(path, tensors);
}

void run(const std::filesystem::path& folder) {
  std::srand(1);
  const World world;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(world.W, world.b);
  const BuildMaterial material = {.layer = layer, .contexts = Contexts::of(world.train)};

  // Registry::standard() has every backend of the library; these two are what follows needs.
  Registry registry;
  registry.add(describe_fused()).add(describe_certify()).add<own_backend::Mine>();

  const auto fused = registry.build("fused", material);
  const auto mine = registry.build("mine", material, {{"kept", "300"}});
  const auto certified = registry.build("certify:mine", material, {{"kept", "300"}});

  const std::vector<TopK> exact = fused->query_batch(world.test, {.k = 5});
  const std::vector<TopK> answers = mine->query_batch(world.test, {.k = 5});
  const std::vector<TopK> proven = certified->query_batch(world.test, {.k = 5});
  std::size_t right = 0;
  std::size_t repaired = 0;
  bool all_proven = true;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    right += answers[i].ids == exact[i].ids ? 1U : 0U;
    repaired += proven[i].work.repaired ? 1U : 0U;
    all_proven = all_proven && proven[i].certified && proven[i].ids == exact[i].ids;
  }
  std::printf("mine finds the five best of %zu in %zu contexts; certify:mine repairs %zu\n", exact.size(),
              right, repaired);
  require(all_proven, "certify:mine answers exactly, and says so");

  for (const TopKSoftmax* const head : {mine.get(), certified.get()}) {
    const std::filesystem::path path = folder / "mine.index";
    save_index(*head, path);
    verify_index(path);
    const auto loaded = load_index(path, layer, registry);
    const TopK before = head->query(world.test.row(0), {.k = 5});
    const TopK after = loaded->query(world.test.row(0), {.k = 5});
    require(loaded->name() == head->name() && before.ids == after.ids && before.logits == after.logits,
            (std::string(head->name()) + " is saved, loaded, and answers as before").c_str());
  }

  TuneOptions options;
  options.target = {.k = 5, .precision = 0.3};
  const TuneResult tuned = tune(layer, world.train, options, registry);
  bool tried = false;
  for (const TuneRow& row : tuned.rows) tried = tried || row.backend == "mine";
  require(tried, "tune() tries it");

  write_head(folder / "head.safetensors", world);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: mine-demo [FOLDER TO WRITE TO]\n");
    return 1;
  }
  try {
    run(argc > 1 ? argv[1] : ".");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mine-demo: %s\n", error.what());
    return 1;
  }
}
