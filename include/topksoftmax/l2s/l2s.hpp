// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/l2s/best_row.hpp"
#include "topksoftmax/l2s/coded_sets.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What L2SScreener works in.
struct L2SScratch {
  ScratchBuffer products;  ///< of the clusters
  ScratchBuffer best;      ///< clusters
  ScratchBuffer ids;
  TokenSet seen;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The screening model of L2S: z(h) = argmax_t v_t·h, then the tokens of C(z(h)) (Eq. 2).
///
/// Cost of a query: reads r·(d + 8) bytes, which prove that few clusters can be z, those clusters, and
/// |C(z)|·d weights; of sets of 128 tokens and more |C(z)|·(d + 8) bytes, which prove that few of them can be
/// among the k best, and those (CodedSets; not for queries with masks or biases). Effort: the number of
/// clusters visited, the best v_t·h first, their sets united; by default 1, others read all r·d weights; r or
/// more exhausts the method and scans the whole vocabulary. A cluster whose set is too small for k (one that
/// no training context fell into, say) answers from the whole vocabulary.
class TOPKSOFTMAX_EXPORT L2SScreener {
 public:
  /// `options` are those that the model was learned with.
  L2SScreener(L2SModel model, L2SOptions options, const SoftmaxLayer& layer, std::string name);
  /// Reads what save() has written.
  explicit L2SScreener(const IndexReader& in);

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return name_; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

  /// Whether there are sets so long that narrow() does something.
  bool narrows() const { return codes_.bytes() > 0; }
  /// Leaves of what screen() has proposed for a query those tokens that may be among the k best.
  void narrow(const Query& query, const SoftmaxLayer& layer, Workspace& workspace,
              Candidates& candidates) const {
    if (candidates.group != Candidates::no_group) codes_.narrow(query, layer, workspace, candidates);
  }

  /// What training has yielded.
  const L2SModel& model() const { return model_; }

 private:
  L2SModel model_;
  detail::BestRow v_;        ///< the model's, as z is found
  detail::CodedSets codes_;  ///< of its sets
  L2SOptions options_;
  std::size_t vocab_;
  std::size_t dim_;
  std::string name_;
};

/// L2S, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks" (Chen et al.,
/// ICLR 2019): clusters of contexts and a candidate set for each, learned together from contexts that the
/// model produced.
///
/// log Z counts the tokens outside of the set by a linear model for each cluster, learned from the same
/// contexts (Normalizer::learned; log_z_error() says how well): in the paper they count as impossible, or in
/// §7.3 by a W of low rank (LowRankLogProb). Impossible they are here at another effort, for a mask that
/// forbids more than a few tokens (OutsideMass), and without such a model. Tokens of long sets that are
/// proven not to be among the k best count by logits from 8-bit rows.
class TOPKSOFTMAX_EXPORT L2S final : public ScreenedSoftmax<L2SScreener> {
 public:
  /// Learns from contexts [N×d], labelled with their exact top tokens, on threads of the executor; the same
  /// model for any number of them. Cost: N·V·d multiply-adds for the labels, or less where the bounds of
  /// Certified find them cheaper (with its memory as long as that takes), train_l2s, and what learning the
  /// mass outside takes: min(N, outside_sample)·V·d multiply-adds and min(N, outside_sample)·V exponentials.
  /// Throws Error for contexts of another dimension or that are not finite, and for unusable options. Defined
  /// in l2s/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> train(SoftmaxLayer layer, const ConstRows& contexts,
                                                             const L2SOptions& options = {},
                                                             const Executor& executor = default_executor());

  /// The same from k-means alone: the paper's Table 5 compares with it. Defined in l2s/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> train_kmeans(
      SoftmaxLayer layer, const ConstRows& contexts, L2SOptions options = {},
      const Executor& executor = default_executor());

  /// The same as train() for contexts in plain memory; `name` is the backend's name. Defined in
  /// l2s/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> train(SoftmaxLayer layer, const Contexts& contexts,
                                                             const L2SOptions& options, std::string_view name,
                                                             const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "l2s";

  /// The backend of an index that was saved for the same layer: see load_index(). The model is
  /// copied: it is small.
  static std::unique_ptr<L2S> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
};

inline L2SScreener::L2SScreener(L2SModel model, L2SOptions options, const SoftmaxLayer& layer,
                                std::string name)
    : model_(std::move(model)),
      v_(detail::StoredRows(StoredArray<float>::copy(model_.v), layer.dim())),
      codes_(layer, model_.sets),
      options_(std::move(options)),
      vocab_(layer.vocab()),
      dim_(layer.dim()),
      name_(std::move(name)) {
  options_.progress = {};  // whom it tells may not live as long
}

inline Candidates L2SScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  candidates.screened = v_.count();
  if (query.effort <= 1) {
    const detail::BestRow::Found found = v_.find(query.h, workspace);
    candidates.bytes_read = found.bytes_read;
    candidates.group = found.row;
    candidates.ids = model_.sets[found.row];
    return candidates;
  }
  const kernels::Rows rows = v_.rows();
  candidates.bytes_read = rows.bytes(rows.count);
  if (query.effort >= rows.count) {
    candidates.everything = true;
    return candidates;
  }

  detail::L2SScratch& scratch = workspace.scratch<detail::L2SScratch>();
  auto* const products = scratch.products.get<float>(rows.count);
  kernels::scan(rows, 0, rows.count, query.h, products);
  kernels::TopKHeap best(scratch.best.get<ScoredToken>(query.effort), query.effort);
  kernels::select(products, nullptr, rows.count, best);
  const std::span<const ScoredToken> visited = best.sort();
  std::size_t room = 0;
  for (const ScoredToken& cluster : visited) room += model_.sets[static_cast<std::size_t>(cluster.id)].size();
  auto* const ids = scratch.ids.get<TokenId>(room);
  std::size_t count = 0;
  scratch.seen.clear(vocab_);
  for (const ScoredToken& cluster : visited) {
    for (const TokenId id : model_.sets[static_cast<std::size_t>(cluster.id)]) {
      if (scratch.seen.insert(id)) ids[count++] = id;
    }
  }
  candidates.ids = {ids, count};
  return candidates;
}

inline void L2S::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  if (!screener().narrows()) return ScreenedSoftmax::do_query(query, workspace, answer);
  Candidates candidates = screen(query, workspace);
  screener().narrow(query, layer(), workspace, candidates);
  answer_from_candidates(layer(), query, candidates, workspace, answer);
}

inline std::size_t L2SScreener::index_bytes() const {
  return v_.bytes() + model_.v.size() * sizeof(float) + codes_.bytes() + model_.sets.bytes();
}

inline std::unique_ptr<L2S> L2S::load(const IndexReader& in) {
  L2SScreener screener(in);
  std::optional<OutsideMass> outside = OutsideMass::load(in, screener.model().clusters);
  return std::unique_ptr<L2S>(new L2S(in.layer(), std::move(screener), std::move(outside)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/l2s/l2s-inl.hpp"
#endif
