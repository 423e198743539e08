// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/head.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "harness/files/folder.hpp"
#include "harness/files/numpy_file.hpp"
#include "harness/heads/contexts_file.hpp"
#include "harness/text/printable.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/checkpoint.hpp"
#include "topksoftmax/io/checkpoint_head.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/gguf_layer.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace topksoftmax::bench {

namespace {

constexpr std::array<const char*, 4> kWeights = {"weight", "W", "lm_head.weight", "lm_head"};
constexpr std::array<const char*, 3> kBiases = {"bias", "b", "lm_head.bias"};

Head from_head_file(const HeadSource& source, const HeadFile& file) {
  if (!source.tensor.empty() || !source.bias.empty()) {
    throw Error(source.head.string() + ": the layer of a head file is found without --tensor and --bias");
  }
  Head head = {.file = source.head.string(),
               .name = file.name(),
               .layer = file.layer(),
               .train = file.train_contexts(),
               .test = file.test_contexts(),
               .counts = file.counts()};
  check_finite(source.head, "contexts.train", head.train);
  check_finite(source.head, "contexts.test", head.test);
  return head;
}

/// A head without contexts of its own.
Head with_layer(const HeadSource& source, std::string name, SoftmaxLayer layer) {
  const RowMajorMatrix none(0, static_cast<Eigen::Index>(layer.dim()));
  return {.file = source.head.string(),
          .name = std::move(name),
          .layer = std::move(layer),
          .train = none,
          .test = none,
          .counts = {}};
}

/// Gives a head the contexts of a file.
void take_contexts(Head& head, const std::filesystem::path& path) {
  ContextSets sets = load_contexts(path, head.layer);
  head.train = std::move(sets.train);
  head.test = std::move(sets.test);
  head.divided = sets.divided;
}

Head from_checkpoint(const HeadSource& source) {
  const ModelCheckpoint model = open_model_checkpoint(source.head);
  CheckpointHead tensors;
  if (source.tensor.empty()) {
    tensors = find_checkpoint_head(model.tensors, model.config);
  } else {
    tensors.weight = source.tensor;
    tensors.bias = find_bias(model.tensors, source.tensor);
    tensors.d2t = find_d2t(model.tensors, source.tensor);
  }
  if (!source.bias.empty()) tensors.bias = source.bias;
  Head head = with_layer(source, model.name, checkpoint_layer(model, tensors));
  head.tokens = checkpoint_token_ids(model.tensors, tensors, head.layer.vocab());
  return head;
}

Head from_gguf(const HeadSource& source) {
  if (!source.tensor.empty() || !source.bias.empty()) {
    throw Error(source.head.string() + ": the head of a GGUF file is found without --tensor and --bias");
  }
  const GgufFile file = GgufFile::open(source.head);
  const GgufHead found = find_gguf_head(file);
  Head head = with_layer(source, found.name, gguf_layer(file));
  head.tokens = gguf_token_ids(file, found);
  return head;
}

/// The name of an array: the given one, or else the first of these, or else the only matrix.
std::string array_named(const NumpyFile& file, const std::string& given, std::span<const char* const> names) {
  if (!given.empty()) return given;
  for (const char* const name : names) {
    if (file.contains(name)) return name;
  }
  return {};
}

/// The layer of weights [V,d] as they are stored; of float64 as float32.
SoftmaxLayer numpy_layer(const NumpyFile& file, const std::string& weight, Eigen::VectorXf bias) {
  const TensorView& array = file.tensor(weight);
  const auto error = [&](const std::string& what) { return file.error(weight, "makes no layer: " + what); };
  if (array.type != DataType::float16 && array.type != DataType::bfloat16) {
    RowMajorMatrix weights = file.matrix(weight);
    return detail::layer_of_file([&] { return SoftmaxLayer::own(std::move(weights), std::move(bias)); },
                                 error);
  }
  if (array.shape.size() != 2) throw file.error(weight, "must have two dimensions, [V, d]");
  kernels::Rows rows;
  rows.type = array.type == DataType::float16 ? WeightType::float16 : WeightType::bfloat16;
  rows.count = array.shape[0];
  rows.dim = rows.stride = array.shape[1];
  return detail::layer_where_it_lies(rows, array.bytes, file.storage(), std::move(bias), {}, error);
}

Head from_numpy(const HeadSource& source) {
  const NumpyFile file = NumpyFile::open(source.head);
  std::string weight = array_named(file, source.tensor, kWeights);
  if (weight.empty() && file.tensors().size() == 1) weight = file.tensors().front().name;
  if (weight.empty()) {
    throw Error(source.head.string() + ": has no array named weight or W; --tensor NAME names another");
  }
  const std::string bias = array_named(file, source.bias, kBiases);
  Head head = with_layer(source, source.head.stem().string(),
                         numpy_layer(file, weight, bias.empty() ? Eigen::VectorXf() : file.vector(bias)));
  if (has_named_contexts(file)) {
    take_contexts(head, source.head);
  }
  return head;
}

Head read(const HeadSource& source) {
  if (is_folder(source.head)) return from_checkpoint(source);
  if (GgufFile::recognises(source.head)) return from_gguf(source);
  if (NumpyFile::recognises(source.head)) return from_numpy(source);
  const std::optional<HeadFile> file = HeadFile::open_if_head(source.head);
  return file ? from_head_file(source, *file) : from_checkpoint(source);
}

}  // namespace

Head load_head(const HeadSource& source) {
  Head head = read(source);
  head.name = printable(head.name);
  if (!source.contexts.empty()) take_contexts(head, source.contexts);
  return head;
}

Head on_cache_lines(Head head) {
  struct Storage {
    StoredArray<std::byte> weights;
    SoftmaxLayer layer;  // for the rest
  };
  kernels::Rows rows = head.layer.rows();
  const std::size_t bytes = rows.count * weight_bytes(rows.type, rows.stride);
  const std::span<const std::byte> weights(static_cast<const std::byte*>(rows.data), bytes);
  auto storage = std::make_shared<Storage>(Storage{StoredArray<std::byte>::copy(weights), head.layer});
  rows.data = storage->weights.data();
  const auto bias_count = static_cast<std::ptrdiff_t>(rows.bias == nullptr ? 0 : rows.count);
  head.layer = SoftmaxLayer::own(rows, bias_count, std::move(storage));
  return head;
}

void require_training_contexts(const Head& head) {
  if (head.train.rows() == 0) {
    throw Error(head.file + ": there are no contexts to learn from; --contexts FILE gives some");
  }
}

void require_test_contexts(const Head& head) {
  if (head.test.rows() == 0) {
    throw Error(head.file + ": there are no contexts to measure on; --contexts FILE gives some");
  }
}

}  // namespace topksoftmax::bench
