// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct QuantizedOptions {
  /// Tokens whose logits are computed in full precision, at least 1, and never fewer than 2·k. A query's
  /// `effort` overrides it.
  std::size_t refine_width = 32;
};

class QuantizedRows;

/// Screens by logits from 8-bit rows: candidates are the tokens with the largest ones.
class TOPKSOFTMAX_EXPORT QuantizedScreener {
 public:
  QuantizedScreener(std::shared_ptr<const QuantizedRows> rows, const QuantizedOptions& options)
      : rows_(std::move(rows)), options_(options) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "quantized"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const QuantizedRows> rows_;
  QuantizedOptions options_;
};

/// The scan of an 8-bit copy of the layer, and the best of it in full precision: what an engine does without
/// any index, and so what indexes are to be measured by.
///
/// Rows are rounded to int8 with a scale each, contexts to 15 bits or, beyond d = 1032, so many that no sum
/// overflows; products are exact integers. All tokens that are not refined keep their estimates in log Z
/// (Normalizer::low_rank, though it is not a rank that is low). Nothing is proven: see Certified.
///
/// Effort: refine_width; from V on every token is scored. Cost of a query: V·(d + 8) bytes, and
/// refine_width·d weights. Index: V·(d + 8) bytes.
class TOPKSOFTMAX_EXPORT Quantized final : public ScreenedSoftmax<QuantizedScreener> {
 public:
  /// Cost: V·d. Throws Error for unusable options and for d > 4096.
  static std::unique_ptr<Quantized> build(SoftmaxLayer layer, const QuantizedOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Quantized> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<Quantized> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
