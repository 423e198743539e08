// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <topksoftmax/candidates.hpp>
#include <topksoftmax/check_options.hpp>
#include <topksoftmax/contexts.hpp>
#include <topksoftmax/index/index_reader.hpp>
#include <topksoftmax/index/index_writer.hpp>
#include <topksoftmax/kernels/kernels.hpp>
#include <topksoftmax/option_limits.hpp>
#include <topksoftmax/registry/axes.hpp>
#include <topksoftmax/registry/description.hpp>
#include <topksoftmax/screened_softmax.hpp>
#include <utility>
#include <vector>

namespace own_backend {

using namespace topksoftmax;

enum class MineOrder : std::uint8_t { falling, rising };

inline constexpr OptionChoices<MineOrder, 2> mine_orders = {
    .type = "MineOrder", .all = {{{"falling", MineOrder::falling}, {"rising", MineOrder::rising}}}};

struct MineOptions {
  std::size_t kept = 50;
  MineOrder order = MineOrder::falling;
  bool reversed = false;

  /// Says all there is to know of each option, once: index files, command lines and checks read it here.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("kept", options.kept, "tokens that are candidates", at_least(1));
    visit("order", options.order, "of the tokens' mean logits", mine_orders);
    visit("reversed", options.reversed, "turns that order round");
  }
};

/// A context in, candidates out: here the tokens whose logits are largest on average, whatever the context.
/// Cost: nothing, and kept·d weights to score them.
class MineScreener {
 public:
  MineScreener(StoredArray<TokenId> order, const MineOptions& options)
      : order_(std::move(order)), options_(options) {}

  /// Const, and called by many threads at once. What a screener writes goes to a struct of its own,
  /// workspace.scratch<MineScratch>(), which nobody else uses.
  Candidates screen(const Query& query, Workspace& /*workspace*/) const {
    const std::size_t kept = std::min(query.effort == 0 ? options_.kept : query.effort, order_.size());
    Candidates candidates;
    candidates.everything = kept == order_.size();
    candidates.ids = order_.span().first(kept);
    return candidates;
  }

  std::string_view name() const { return "mine"; }
  std::size_t index_bytes() const { return order_.size() * sizeof(TokenId); }

  void save(IndexWriter& out) const {
    out.kind("mine");
    MineOptions::visit(options_, out.options());
    out.array("order", {order_.size()}, order_);
  }

 private:
  StoredArray<TokenId> order_;  ///< owned, or where it lies in a mapped file
  MineOptions options_;
};

/// The backend.
class Mine final : public ScreenedSoftmax<MineScreener> {
 public:
  static constexpr std::string_view kind = "mine";

  static std::unique_ptr<Mine> build(SoftmaxLayer layer, const Contexts& contexts,
                                     const MineOptions& options = {}) {
    check_options(kind, options);
    const std::size_t vocab = layer.vocab();
    std::vector<double> sums(vocab, 0.0);
    std::vector<float> logits(vocab);
    for (std::size_t i = 0; i < contexts.count; ++i) {
      kernels::scan(layer.rows(), 0, vocab, contexts.row(i), logits.data());
      for (std::size_t t = 0; t < vocab; ++t) sums[t] += static_cast<double>(logits[t]);
    }
    std::vector<TokenId> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    const bool falling = (options.order == MineOrder::falling) != options.reversed;
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      const double x = sums[static_cast<std::size_t>(a)];
      const double y = sums[static_cast<std::size_t>(b)];
      return falling ? x > y : x < y;
    });
    return std::unique_ptr<Mine>(
        new Mine(std::move(layer), MineScreener(StoredArray<TokenId>::own(std::move(order)), options)));
  }

  /// What a file says is checked: a damaged one is refused, and never read past its end.
  static std::unique_ptr<Mine> load(const IndexReader& in) {
    MineOptions options;
    MineOptions::visit(options, in.options());
    in.check([&] { check_options(kind, options); });
    return std::unique_ptr<Mine>(
        new Mine(in.layer(), MineScreener(in.distinct_tokens("order", {in.vocab()}), options)));
  }

  /// What a Registry takes.
  static BackendDescription describe() {
    return {
        .name = "mine",
        .kind = std::string(kind),
        .summary = "The tokens with the largest mean logits",
        .builder = builder<MineOptions>({"Mine::build", "layer, contexts", "mine.hpp"},
                                        [](const BuildMaterial& from, const MineOptions& options) {
                                          return build(from.layer, from.contexts, options);
                                        }),
        .loader = &load_as<Mine>,
        .axes = {{.option = "kept", .values = axis::listed({20, 100, 200}), .effort = axis::value_itself}}};
  }

 private:
  using ScreenedSoftmax::ScreenedSoftmax;

  /// A batch shares its work: its contexts have the same candidates, whose weights are read once for 16 of
  /// them.
  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    if (!batch.same_options()) return answer_one_by_one(batch, workspace, answers);
    answer_batch_from_candidates(layer(), batch, screener().screen(batch[0], workspace), workspace, answers);
  }
};

}  // namespace own_backend
