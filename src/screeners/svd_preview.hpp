// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "stored_rows.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

/// W of low rank: the leading columns of UΣ and V, where W = UΣVᵀ.
class SvdPreview {
 public:
  /// Cost: V·d² + d³.
  SvdPreview(const SoftmaxLayer& layer, std::size_t width);

  /// What save() has written.
  SvdPreview(const IndexReader& in, std::size_t width);
  void save(IndexWriter& out) const;

  /// The low-rank logits of all tokens: logits [V] = UΣ(Vᵀh) + b. turned [width] is scratch. Reads bytes().
  void logits(const float* h, float* turned, float* logits) const;

  std::size_t width() const { return directions_.count(); }

  std::size_t vocab() const { return tokens_.count(); }
  std::size_t bytes() const { return directions_.rows().bytes(width()) + tokens_.rows().bytes(vocab()); }

 private:
  StoredRows directions_;  ///< Vᵀ [width×d]
  StoredRows tokens_;      ///< UΣ [V×width] and b
};

}  // namespace topksoftmax
