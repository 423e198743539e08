// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// W of low rank: the leading columns of UΣ and V, where W = UΣVᵀ. What SVD-softmax screens with
/// ("SVD-Softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks", Shim et al., NIPS 2017,
/// §3), and an estimate of any token's logit for those who need one. Memory: bytes().
class SvdPreview {
 public:
  /// The leading `width` directions, from 1 to d. Cost: V·d·(d/2 + width) multiply-adds on the executor's
  /// threads, 4/3·d³ on one and 3.5·d³ on all again; V·width floats beside what is kept, 3·d² float64 values,
  /// and 4,096 rows in float32 and float64 a thread. Throws what `progress` throws. Defined in svd/build.hpp.
  TOPKSOFTMAX_BUILD_INLINE SvdPreview(const SoftmaxLayer& layer, std::size_t width, const Executor& executor,
                                      const TrainingProgress& progress = {});

  /// What save() has written, for the layer that `in` is of. Throws Error where it cannot be that.
  SvdPreview(const IndexReader& in, std::size_t width);
  /// Puts what the constructor above reads into `out`.
  void save(IndexWriter& out) const;

  /// The low-rank products of all tokens with h [d]: products [V] = UΣ(Vᵀh) + b. turned [width] is scratch.
  /// Reads bytes(), on the workspace's crew.
  void products(const float* h, const Workspace& workspace, float* turned, float* products) const;

  /// Their low-rank logits: the layer's transform of these.
  void logits(const float* h, const Workspace& workspace, float* turned, float* logits) const;

  /// Directions kept.
  std::size_t width() const { return directions_.count(); }
  /// The layer's transform.
  const LogitTransform& transform() const { return transform_; }
  /// V of the layer.
  std::size_t vocab() const { return tokens_.count(); }
  /// Bytes kept: 4·((V + d)·width + V).
  std::size_t bytes() const { return directions_.rows().bytes(width()) + tokens_.rows().bytes(vocab()); }

 private:
  detail::StoredRows directions_;  ///< Vᵀ [width×d]
  detail::StoredRows tokens_;      ///< UΣ [V×width] and b
  LogitTransform transform_;
};

inline SvdPreview::SvdPreview(const IndexReader& in, std::size_t width)
    : directions_(in.floats("directions", {width, in.dim()}), in.dim()),
      tokens_(in.floats("tokens", {in.vocab(), width}), width, StoredArray<float>::own(in.layer().biases())),
      transform_(in.layer().transform()) {}

inline void SvdPreview::save(IndexWriter& out) const {
  out.array("directions", {directions_.count(), directions_.dim()}, directions_.weights());
  out.array("tokens", {tokens_.count(), tokens_.dim()}, tokens_.weights());
}

inline void SvdPreview::products(const float* h, const Workspace& workspace, float* turned,
                                 float* products) const {
  kernels::scan(directions_.rows(), 0, width(), h, turned);
  scan(workspace, tokens_.rows(), 0, vocab(), turned, products);
}

inline void SvdPreview::logits(const float* h, const Workspace& workspace, float* turned,
                               float* logits) const {
  products(h, workspace, turned, logits);
  kernels::transform(transform_, logits, vocab());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
