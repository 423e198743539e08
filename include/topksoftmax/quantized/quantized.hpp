// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/estimated_candidates.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/rows/context_rounding.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What QuantizedScreener works in.
struct QuantizedScratch {
  ScratchBuffer context;    ///< filled up with zeros
  ScratchBuffer shorts;     ///< the 15-bit integers of every context
  ScratchBuffer estimates;  ///< of all rows for every context
  ScratchBuffer radii;      ///< those of one: nobody reads them
};

class QuantizedRows;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of Quantized. What builds throws Error for values out of their ranges.
struct QuantizedOptions {
  /// Tokens whose logits are computed in full precision, at least 1, and never fewer than 2·k. A query's
  /// `effort` overrides it.
  std::size_t refine_width = 32;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("refine_width", options.refine_width, "tokens that are scored in full precision, at least 2k",
          at_least(1));
  }
};

/// Screens by logits from 8-bit rows: candidates are the tokens with the largest ones.
class TOPKSOFTMAX_EXPORT QuantizedScreener {
 public:
  /// Screens by 8-bit rows that quantized/build.hpp has made or load() has read, and takes the `refine_width`
  /// best.
  QuantizedScreener(std::shared_ptr<const detail::QuantizedRows> rows, std::size_t refine_width)
      : rows_(std::move(rows)), refine_width_(refine_width) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The same for at most kernels::kPrefixBatch queries in one pass: take(q, candidates, workspace) is given
  /// those of each, in a workspace of the crew.
  template <class Take>
  void screen_batch(const QueryBatch& batch, Workspace& workspace, const Take& take) const;
  /// Whether a query's candidates are all tokens, for which no rows are read.
  bool takes_all(const Query& query) const;
  /// The backend's name.
  std::string_view name() const { return "quantized"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::size_t wanted(const Query& query) const {
    return std::max(query.effort != 0 ? query.effort : refine_width_, 2 * query.k);
  }

  std::shared_ptr<const detail::QuantizedRows> rows_;
  std::size_t refine_width_;
};

/// The scan of an 8-bit copy of the layer, and the best of it in full precision: what an engine does without
/// any index, and so the measure of every index.
///
/// Rows are rounded to int8 with a scale each, contexts to 15 bits or, from d = 1,029 on, so many that no sum
/// overflows; products are exact integers. All tokens that are not refined keep their estimates in log Z
/// (Normalizer::low_rank, though it is not a rank that is low). Nothing is proven: see Certified.
///
/// Effort: refine_width; from V on every token is scored. Cost of a query: V·(d + 8) bytes, and
/// refine_width·d weights. Batches read the V·(d + 8) bytes once for eight contexts. Index: V·(d + 8) bytes.
class TOPKSOFTMAX_EXPORT Quantized final : public ScreenedSoftmax<QuantizedScreener> {
 public:
  /// Cost: V·d, on the executor's threads. Throws Error for unusable options and for d > 16,384, and
  /// what `progress` throws. Defined in quantized/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Quantized> build(
      SoftmaxLayer layer, const QuantizedOptions& options = {},
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "quantized";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Quantized> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;

  inline void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override;
  std::size_t shared_bytes() const override { return index_bytes(); }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr const char* kQuantizedRowsName = "prefixes";

/// Throws Error for what cannot be built.
inline void check_quantized(const SoftmaxLayer& layer, const QuantizedOptions& options) {
  check_options("quantized", options);
  if (layer.dim() > kernels::kMaxWidth) {
    throw bad_value("quantized: the layer's dimension", layer.dim(), "at most ", kernels::kMaxWidth);
  }
}

/// Whole rows as prefixes, which leave nothing out: their radii are 0.
class QuantizedRows {
 public:
  /// Defined in quantized/build.hpp.
  TOPKSOFTMAX_BUILD_INLINE QuantizedRows(const SoftmaxLayer& layer, const Executor& executor,
                                         const TrainingProgress& progress = {});

  /// Reads what save() has written.
  explicit QuantizedRows(const IndexReader& in)
      : dim_(in.dim()),
        transform_(in.layer().transform()),
        store_(in, kQuantizedRowsName, in.vocab(), kernels::PrefixBlocks::width_for(dim_)) {
    store_.check_biases(in, kQuantizedRowsName, RowOrder());
  }

  void save(IndexWriter& out) const { store_.save(out, kQuantizedRowsName); }

  std::size_t dim() const { return dim_; }
  const LogitTransform& transform() const { return transform_; }
  const kernels::PrefixBlocks& blocks() const { return store_.blocks(); }

 private:
  std::size_t dim_;
  LogitTransform transform_;
  PrefixStore store_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline bool QuantizedScreener::takes_all(const Query& query) const {
  return wanted(query) >= rows_->blocks().rows;
}

template <class Take>
void QuantizedScreener::screen_batch(const QueryBatch& batch, Workspace& workspace, const Take& take) const {
  const std::size_t count = batch.size();
  const kernels::PrefixBlocks& blocks = rows_->blocks();
  const std::size_t room = blocks.blocks() * kernels::PrefixBlocks::kRows;
  detail::QuantizedScratch& scratch = workspace.scratch<detail::QuantizedScratch>();
  auto* const h = scratch.context.get<float>(blocks.width);
  auto* const shorts = scratch.shorts.get<std::int16_t>(count * blocks.width);
  auto* const estimates = scratch.estimates.get<float>(count * room);
  auto* const radii = scratch.radii.get<float>(room);
  kernels::PrefixProducts products[kernels::kPrefixBatch];
  for (std::size_t q = 0; q < count; ++q) {
    std::fill(std::copy_n(batch[q].h, rows_->dim(), h), h + blocks.width, 0.0F);
    std::int16_t* const n = shorts + q * blocks.width;
    const float scale = detail::round_to_shorts(h, blocks.width, n);
    products[q] = {{.n = n, .scale = scale}, estimates + q * room, radii};
  }
  prefix_bounds_batch(workspace, blocks, {products, count});
  detail::share_in_workspaces(workspace, count, [&](std::size_t q, Workspace& own) {
    const Query query = batch[q];
    if (takes_all(query)) return take(q, Candidates::all(), own);
    Candidates candidates = detail::best_estimated(query, rows_->transform(), products[q].estimates,
                                                   blocks.rows, wanted(query), own);
    candidates.screened = blocks.rows;
    candidates.bytes_read = blocks.bytes();
    take(q, candidates, own);
  });
}

inline Candidates QuantizedScreener::screen(const Query& query, Workspace& workspace) const {
  if (takes_all(query)) return Candidates::all();
  Candidates found;
  screen_batch(QueryBatch(query), workspace,
               [&](std::size_t, const Candidates& candidates, Workspace&) { found = candidates; });
  return found;
}

inline std::size_t QuantizedScreener::index_bytes() const {
  return rows_->blocks().bytes();
}

inline void QuantizedScreener::save(IndexWriter& out) const {
  out.kind(Quantized::kind);
  const QuantizedOptions options = {.refine_width = refine_width_};
  QuantizedOptions::visit(options, out.options());
  rows_->save(out);
}

inline void Quantized::do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
  if (batch.all_of([this](const Query& query) { return screener().takes_all(query); })) {
    return answer_batch_from_all(layer(), batch, workspace, answers);
  }
  for (std::size_t first = 0; first < batch.size(); first += kernels::kPrefixBatch) {
    const QueryBatch some = batch.part(first, std::min(kernels::kPrefixBatch, batch.size() - first));
    const auto answer = [&](std::size_t q, const Candidates& candidates, Workspace& own) {
      answer_from_candidates(layer(), some[q], candidates, own, answers[first + q]);
    };
    screener().screen_batch(some, workspace, answer);
  }
}

inline std::unique_ptr<Quantized> Quantized::load(const IndexReader& in) {
  QuantizedOptions options;
  QuantizedOptions::visit(options, in.options());
  in.check([&] { detail::check_quantized(in.layer(), options); });
  auto rows = std::make_shared<const detail::QuantizedRows>(in);
  return std::unique_ptr<Quantized>(
      new Quantized(in.layer(), QuantizedScreener(std::move(rows), options.refine_width)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
