// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// A softmax layer with contexts that its model really produced, as a safetensors file holds them:
///
///   weight          [V,d]  F32, F16, BF16, or I8 with
///   weight.scale    [V]    F32: w = scale·q
///   bias            [V]    F32, F16 or BF16, optional
///   contexts.train  [N,d]  likewise: what backends may learn from
///   contexts.test   [M,d]  likewise: what they are judged on
///   counts          [V]    integers, optional: how often each token occurred in the training text
///
/// Metadata: name, provenance.
class TOPKSOFTMAX_EXPORT HeadFile {
 public:
  /// Opens and checks the file. Throws Error where it is no head file: a tensor missing, of another shape or
  /// type.
  static HeadFile open(const std::filesystem::path& path);

  /// "name" of the metadata, or else the file's name.
  const std::string& name() const { return name_; }
  std::size_t vocab() const { return vocab_; }
  std::size_t dim() const { return dim_; }
  /// N and M: 0 where there are none.
  std::size_t train_count() const { return train_count_; }
  std::size_t test_count() const { return test_count_; }

  /// The layer in float32, a copy where it is stored otherwise.
  SoftmaxLayer layer() const {
    return SoftmaxLayer::own(float_weights(),
                             file_.contains("bias") ? file_.vector("bias") : Eigen::VectorXf());
  }

  /// The layer in the type that it is stored in, used where it lies in the mapped file; a copy where it does
  /// not lie at a multiple of its weights' size.
  SoftmaxLayer stored_layer() const;

  /// contexts.train [N×d], contexts.test [M×d] as float32; no rows where the file has none.
  RowMajorMatrix train_contexts() const { return contexts("contexts.train", train_count_); }
  RowMajorMatrix test_contexts() const { return contexts("contexts.test", test_count_); }

  /// counts [V]; empty where the file has none. Throws Error where one is negative.
  std::vector<std::int64_t> counts() const;

 private:
  explicit HeadFile(SafetensorsFile file) : file_(std::move(file)) {}

  RowMajorMatrix float_weights() const {
    RowMajorMatrix W = file_.matrix("weight");
    if (file_.contains("weight.scale")) W.array().colwise() *= file_.vector("weight.scale").array();
    return W;
  }

  RowMajorMatrix contexts(const char* tensor, std::size_t count) const {
    return count == 0 ? RowMajorMatrix(0, static_cast<Eigen::Index>(dim_)) : file_.matrix(tensor);
  }

  SafetensorsFile file_;
  std::string name_;
  std::size_t vocab_ = 0;
  std::size_t dim_ = 0;
  std::size_t train_count_ = 0;
  std::size_t test_count_ = 0;
};

}  // namespace topksoftmax
