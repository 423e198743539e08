// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/head_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace topksoftmax {
namespace {

constexpr std::size_t kAny = SafetensorsFile::any_size;

std::size_t count_contexts(const SafetensorsFile& file, const char* tensor, std::size_t dim) {
  if (!file.contains(tensor)) return 0;
  return file.tensor(tensor, std::array{kAny, dim}).shape[0];
}

WeightType weight_type(const SafetensorsFile& file, const TensorView& weight) {
  switch (weight.type) {
    case DataType::float32:
      return WeightType::float32;
    case DataType::float16:
      return WeightType::float16;
    case DataType::bfloat16:
      return WeightType::bfloat16;
    case DataType::int8:
      return WeightType::int8;
    default:
      throw file.error(weight.name, "is stored as " + std::string(data_type_name(weight.type)) +
                                        ", expected F32, F16, BF16 or I8");
  }
}

}  // namespace

HeadFile HeadFile::open(const std::filesystem::path& path) {
  HeadFile head(SafetensorsFile::open(path));
  const SafetensorsFile& file = head.file_;
  const TensorView& weight = file.tensor("weight", std::array{kAny, kAny});
  head.vocab_ = weight.shape[0];
  head.dim_ = weight.shape[1];
  const bool scaled = weight_type(file, weight) == WeightType::int8;
  if (scaled != file.contains("weight.scale")) {
    throw file.error("weight.scale", "must be there if, and only if, weight is stored as I8");
  }
  if (scaled) file.tensor("weight.scale", std::array{head.vocab_});
  if (file.contains("bias")) file.tensor("bias", std::array{head.vocab_});
  if (file.contains("counts")) file.tensor("counts", std::array{head.vocab_});
  head.train_count_ = count_contexts(file, "contexts.train", head.dim_);
  head.test_count_ = count_contexts(file, "contexts.test", head.dim_);
  const auto name = file.metadata().find("name");
  head.name_ = name != file.metadata().end() ? name->second : path.stem().string();
  return head;
}

SoftmaxLayer HeadFile::stored_layer() const {
  const TensorView& weight = file_.tensor("weight");
  // What lies in the file as it is used there, and what had to be converted, live together.
  struct Storage {
    std::shared_ptr<const void> file;
    std::vector<std::byte> weight;
    Eigen::VectorXf bias;
    Eigen::VectorXf scales;
  };
  auto storage = std::make_shared<Storage>();
  storage->file = file_.storage();
  kernels::Rows rows;
  rows.data = weight.bytes.data();
  if (reinterpret_cast<std::uintptr_t>(rows.data) % data_type_size(weight.type) != 0) {
    storage->weight.assign(weight.bytes.begin(), weight.bytes.end());
    rows.data = storage->weight.data();
  }
  rows.type = weight_type(file_, weight);
  rows.count = vocab_;
  rows.dim = rows.stride = dim_;
  if (file_.contains("bias")) {
    storage->bias = file_.vector("bias");
    rows.bias = storage->bias.data();
  }
  if (file_.contains("weight.scale")) {
    storage->scales = file_.vector("weight.scale");
    rows.scales = storage->scales.data();
  }
  const Eigen::Index bias_count = storage->bias.size();
  return SoftmaxLayer::own(rows, bias_count, std::move(storage));
}

std::vector<std::int64_t> HeadFile::counts() const {
  std::vector<std::int64_t> counts(file_.contains("counts") ? vocab_ : 0);
  if (counts.empty()) return counts;
  file_.read("counts", std::span<std::int64_t>(counts));
  const auto negative =
      std::find_if(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; });
  if (negative != counts.end()) {
    throw file_.error("counts", "holds " + std::to_string(*negative) + " for token " +
                                    std::to_string(negative - counts.begin()) +
                                    "; a token occurs at least 0 times");
  }
  return counts;
}

}  // namespace topksoftmax
