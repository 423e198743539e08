// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/io/stored_layer.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A softmax layer with contexts that its model produced, in a safetensors file:
///
///   weight          [V,d]  F32, F16, BF16, or I8 with
///   weight.scale    [V]    F32: w = scale·q
///   bias            [V]    F32, F16 or BF16, optional
///   contexts.train  [N,d]  likewise: what backends may learn from
///   contexts.test   [M,d]  likewise: what they are judged on
///   counts          [V]    integers, optional: how often each token occurred in the training text
///
/// Metadata: name, provenance; logit_scale and soft_cap (LogitTransform) as decimal numbers where the model
/// has them.
class HeadFile {
 public:
  /// Opens and checks the file. Throws Error where it is not a head file: a tensor missing, of another shape
  /// or type, or a transform that LogitTransform does not allow.
  static HeadFile open(const std::filesystem::path& path);

  /// The same of a safetensors file that has a tensor `weight`. Nothing of one that has none, as a model's
  /// checkpoint, nor of an index of shards (.json). Throws Error as SafetensorsFile::open() does too.
  static std::optional<HeadFile> open_if_head(const std::filesystem::path& path);

  /// "name" of the metadata, or else the file's name.
  const std::string& name() const { return name_; }
  /// V, the number of tokens.
  std::size_t vocab() const { return vocab_; }
  /// d, the length of a context.
  std::size_t dim() const { return dim_; }
  /// N and M: 0 where there are none.
  std::size_t train_count() const { return train_count_; }
  /// Number of contexts to measure on, M.
  std::size_t test_count() const { return test_count_; }

  /// The model's logit scale and soft cap.
  const LogitTransform& transform() const { return transform_; }

  /// The layer in the type that it is stored in, used where it lies in the mapped file; a copy where it does
  /// not lie at a multiple of its weights' size.
  SoftmaxLayer layer() const { return layer(0, vocab_); }

  /// The same of rows first, …, first + count − 1 alone: of the weights' bytes, those of other rows are not
  /// touched. Throws Error where the file has no such rows, or none are asked for.
  SoftmaxLayer layer(std::size_t first, std::size_t count) const;

  /// contexts.train [N×d], contexts.test [M×d] as float32; no rows where the file has none.
  RowMajorMatrix train_contexts() const { return contexts("contexts.train", train_count_); }
  /// The contexts to measure on [M×d]; likewise.
  RowMajorMatrix test_contexts() const { return contexts("contexts.test", test_count_); }

  /// Whether the file has token counts.
  bool has_counts() const { return file_.contains("counts"); }
  /// counts [V]; empty where the file has none. Throws Error where one is negative.
  std::vector<std::int64_t> counts() const;

 private:
  explicit HeadFile(SafetensorsFile file);

  RowMajorMatrix contexts(const char* tensor, std::size_t count) const {
    return count == 0 ? RowMajorMatrix(0, static_cast<Eigen::Index>(dim_)) : file_.matrix(tensor);
  }

  SafetensorsFile file_;
  std::string name_;
  LogitTransform transform_;
  std::size_t vocab_ = 0;
  std::size_t dim_ = 0;
  std::size_t train_count_ = 0;
  std::size_t test_count_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline std::size_t count_contexts(const SafetensorsFile& file, const char* tensor, std::size_t dim) {
  if (!file.contains(tensor)) return 0;
  return file.tensor(tensor, std::array{kAnySize, dim}).shape[0];
}

/// A number of the metadata; `otherwise` where it has none of this name.
inline float metadata_number(const SafetensorsFile& file, const char* name, float otherwise) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end()) return otherwise;
  const std::string& text = found->second;
  if (const std::optional<float> value = number_of<float>(text)) return *value;
  throw Error(file.path().string() + ": metadata " + name + " is " + in_quotes(text) +
              "; it must be a number within float32's range");
}

/// The transform of the metadata.
inline LogitTransform transform_in(const SafetensorsFile& file) {
  const LogitTransform transform = {.scale = metadata_number(file, "logit_scale", 1.0F),
                                    .soft_cap = metadata_number(file, "soft_cap", 0.0F)};
  check_transform(transform, file.path().string() + ": ");
  return transform;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline HeadFile::HeadFile(SafetensorsFile file) : file_(std::move(file)) {
  const TensorView& weight = file_.tensor("weight", std::array{detail::kAnySize, detail::kAnySize});
  vocab_ = weight.shape[0];
  dim_ = weight.shape[1];
  const bool scaled = detail::stored_weight_type(file_, weight) == WeightType::int8;
  if (scaled != file_.contains("weight.scale")) {
    throw file_.error("weight.scale", "must be there if, and only if, weight is stored as I8");
  }
  if (scaled) file_.tensor("weight.scale", std::array{vocab_});
  if (file_.contains("bias")) file_.tensor("bias", std::array{vocab_});
  if (file_.contains("counts")) file_.tensor("counts", std::array{vocab_});
  train_count_ = detail::count_contexts(file_, "contexts.train", dim_);
  test_count_ = detail::count_contexts(file_, "contexts.test", dim_);
  const auto name = file_.metadata().find("name");
  name_ = name != file_.metadata().end() ? name->second : file_.path().stem().string();
  transform_ = detail::transform_in(file_);
}

inline HeadFile HeadFile::open(const std::filesystem::path& path) {
  return HeadFile(SafetensorsFile::open(path));
}

inline std::optional<HeadFile> HeadFile::open_if_head(const std::filesystem::path& path) {
  if (path.extension() == ".json") return std::nullopt;
  SafetensorsFile file = SafetensorsFile::open(path);
  if (!file.contains("weight")) return std::nullopt;
  return HeadFile(std::move(file));
}

inline SoftmaxLayer HeadFile::layer(std::size_t first, std::size_t count) const {
  const TensorView& weight = file_.tensor("weight");
  if (first > vocab_ || count > vocab_ - first) {
    throw file_.error("weight", "has " + std::to_string(vocab_) + " rows; rows " + std::to_string(first) +
                                    " to " + std::to_string(first + count) + " are asked for");
  }
  const auto part = [&](const char* name) -> Eigen::VectorXf {
    if (!file_.contains(name)) return {};
    return file_.vector(name).segment(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(count));
  };
  return detail::stored_layer(file_, weight, first, count, part("bias"), part("weight.scale"), transform_);
}

inline std::vector<std::int64_t> HeadFile::counts() const {
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

}  // namespace TOPKSOFTMAX_NAMESPACE
