// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/fgd.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/int8_rows.hpp"
#include "screeners/search_beam.hpp"
#include "screeners/small_world_graph.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "training/check_contexts.hpp"
#include "training/evenly_spaced.hpp"
#include "training/exact_labels.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "fgd";

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("M", options.M);
  visit("ef_construction", options.ef_construction);
  visit("ef_search", options.ef_search);
  visit("seed", options.seed);
  visit("entry_points", options.entry_points);
  visit("context_sample", options.context_sample);
}

void check_range(const char* option, std::size_t value, std::size_t low, std::size_t high) {
  if (value >= low && value <= high) return;
  throw Error(
      "fgd: " + std::string(option) + " is " + std::to_string(value) + "; it must be at least " +
      std::to_string(low) +
      (high == std::numeric_limits<std::size_t>::max() ? "" : " and at most " + std::to_string(high)));
}

void check_options(const SoftmaxLayer& layer, const FgdOptions& options) {
  constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
  check_range("M", options.M, 2, 1024);
  check_range("ef_construction", options.ef_construction, 1, any);
  check_range("ef_search", options.ef_search, 1, any);
  check_range("entry_points", options.entry_points, 1, any);
  check_range("context_sample", options.context_sample, 1, any);
  check_range("the number of tokens", layer.vocab(), 1, SearchBeam::kMostRows);
}

FgdOptions read_options(const IndexReader& in) {
  FgdOptions options;
  visit_options(options, in.options());
  in.check([&] { check_options(in.layer(), options); });
  return options;
}

}  // namespace

/// What a query walks on.
class FgdIndex {
 public:
  FgdIndex(const SoftmaxLayer& layer, const FgdOptions& options, std::vector<TokenId> entries)
      : options_(options),
        graph_(layer, {.M = options.M, .ef_construction = options.ef_construction, .seed = options.seed},
               std::move(entries)),
        rows_(layer.rows()),
        dim_(layer.dim()) {
    if (layer.weight_type() != WeightType::int8) rows_ = copy_.emplace(layer).rows();
  }

  explicit FgdIndex(const IndexReader& in)
      : options_(read_options(in)), graph_(in), rows_(in.layer().rows()), dim_(in.dim()) {
    if (in.layer().weight_type() != WeightType::int8) rows_ = copy_.emplace(in).rows();
  }

  void save(IndexWriter& out) const {
    visit_options(options_, out.options());
    graph_.save(out);
    if (copy_) copy_->save(out);
  }

  const SmallWorldGraph& graph() const { return graph_; }
  /// The rows that the search reads: the int8 copy, or the layer's own where they are int8 already.
  const kernels::Rows& rows() const { return rows_; }
  std::size_t ef_search() const { return options_.ef_search; }
  /// d.
  std::size_t dim() const { return dim_; }
  std::size_t bytes() const { return graph_.bytes() + (copy_ ? copy_->bytes() : 0); }

 private:
  FgdOptions options_;
  SmallWorldGraph graph_;
  std::optional<Int8Rows> copy_;
  kernels::Rows rows_;
  std::size_t dim_;
};

namespace {

/// Beyond this share of the vocabulary a search costs more than scoring every row.
constexpr std::size_t kWorthwhileShare = 16;

/// Rows worth scoring at a time: as many as the kernels score together.
constexpr std::size_t kBatch = 16;

constexpr std::size_t kCacheLine = 64;

/// One walk through the graph.
class Search {
 public:
  /// At most `limit` > ef rows can be in its beam.
  Search(const FgdIndex& index, const Query& query, std::size_t ef, std::size_t limit, Workspace& workspace)
      : graph_(index.graph()),
        rows_(index.rows()),
        edits_(query.edits),
        context_(query.h),
        workspace_(workspace),
        beam_(workspace.screen[0].get<float>(limit), workspace.screen[1].get<std::uint32_t>(limit), limit,
              ef),
        ids_(workspace.screen[2].get<TokenId>(batch_room())),
        logits_(workspace.screen[3].get<float>(batch_room())) {
    if (rows_.dim > index.dim()) context_ = padded(query.h, index.dim());
    workspace.seen.clear(rows_.count);
  }

  /// Walks until the best row left is worse than the ef best found. False where the beam overflows.
  bool run() {
    for (const TokenId entry : graph_.entries()) add(entry);
    if (!graph_.upper().empty()) add(descend(graph_.entries().front()));
    while (count_ > 0) {
      if (!score()) return false;
      for (TokenId row = 0; count_ < kBatch && (row = beam_.expand_next()) >= 0;) follow(row);
    }
    return true;
  }

  /// The tokens found, best first.
  std::span<const TokenId> found(std::size_t limit) {
    auto* const ids = workspace_.candidates.get<TokenId>(limit);
    return {ids, beam_.take(ids)};
  }

  std::size_t scored() const { return scored_; }
  std::size_t bytes_read() const { return rows_.bytes(scored_) + links_followed_ * sizeof(TokenId); }

 private:
  /// The most rows that come together in a batch.
  std::size_t batch_room() const {
    std::size_t most = std::max(graph_.ground().most(), graph_.entries().size() + 1);
    for (const Links& layer : graph_.upper()) most = std::max(most, layer.most());
    return kBatch + most;
  }

  const float* padded(const float* h, std::size_t dim) {
    auto* const context = workspace_.screen[4].get<float>(rows_.dim);
    std::copy_n(h, dim, context);
    std::fill(context + dim, context + rows_.dim, 0.0F);
    return context;
  }

  /// HNSW's way down: in each layer to the neighbour with the largest logit, until there is none better.
  TokenId descend(TokenId row) {
    kernel_.scan_gathered(rows_, &row, 1, context_, logits_);
    ++scored_;
    float best = logits_[0];
    for (const Links& layer : graph_.upper()) {
      for (bool better = true; better;) {
        const std::span<const TokenId> links = layer.of(row);
        kernel_.scan_gathered(rows_, links.data(), links.size(), context_, logits_);
        scored_ += links.size();
        links_followed_ += links.size();
        const float* const found = std::max_element(logits_, logits_ + links.size());
        better = found != logits_ + links.size() && *found > best;
        if (better) {
          best = *found;
          row = links[static_cast<std::size_t>(found - logits_)];
        }
      }
    }
    return row;
  }

  /// Puts a row into the batch, unless it has been in one.
  void add(TokenId row) {
    ids_[count_] = row;
    count_ += workspace_.seen.insert(row) ? 1U : 0U;
  }

  void follow(TokenId row) {
    const std::span<const TokenId> links = graph_.ground().of(row);
    links_followed_ += links.size();
    const std::size_t first = count_;
    for (const TokenId link : links) add(link);
    const std::size_t bytes = rows_.dim * weight_bytes(rows_.type);
    const std::size_t stride = rows_.stride * weight_bytes(rows_.type);
    for (std::size_t i = first; i < count_; ++i) {
      const auto* const weights =
          static_cast<const std::byte*>(rows_.data) + static_cast<std::size_t>(ids_[i]) * stride;
      for (std::size_t line = 0; line < bytes; line += kCacheLine) hwy::Prefetch(weights + line);
    }
  }

  /// Empties the batch into the beam.
  bool score() {
    kernel_.scan_gathered(rows_, ids_, count_, context_, logits_);
    scored_ += count_;
    const float threshold = beam_.threshold();
    std::size_t promising = 0;
    for (std::size_t i = 0; i < count_; ++i) {  // most are not: sort them out without a branch
      const float logit = logits_[i];
      logits_[promising] = logit;
      ids_[promising] = ids_[i];
      promising += logit > threshold ? 1U : 0U;
    }
    count_ = 0;
    for (std::size_t i = 0; i < promising; ++i) {
      if (beam_.overflows()) return false;
      beam_.offer(logits_[i], ids_[i], edits_.empty() || answerable(ids_[i]));
    }
    return true;
  }

  /// Forbidden tokens cannot be answered, and those with a bias of their own are candidates anyway.
  bool answerable(TokenId row) const {
    const TokenBias* const end = edits_.bias + edits_.bias_count;
    const TokenBias* const biased = std::lower_bound(
        edits_.bias, end, row, [](const TokenBias& bias, TokenId id) { return bias.id < id; });
    return edits_.allows(row) && (biased == end || biased->id != row);
  }

  const kernels::Implementation& kernel_ = kernels::active();
  const SmallWorldGraph& graph_;
  const kernels::Rows& rows_;
  const kernels::LogitEdits& edits_;
  const float* context_;
  Workspace& workspace_;
  SearchBeam beam_;
  TokenId* ids_;   ///< the batch
  float* logits_;  ///< of the batch
  std::size_t count_ = 0;
  std::size_t scored_ = 0;
  std::size_t links_followed_ = 0;
};

/// The tokens that are most often the first of the contexts, the most frequent first; none without contexts.
std::vector<TokenId> frequent_winners(const SoftmaxLayer& layer, const Contexts& contexts,
                                      const FgdOptions& options) {
  if (contexts.count == 0) return {};
  const RowMajorMatrix sample = evenly_spaced(contexts, options.context_sample);
  std::vector<std::size_t> wins(layer.vocab(), 0);
  for (const TokenId winner : exact_labels(layer, Contexts::of(sample), 1, 1, 0.0, 1.0).ids) {
    ++wins[static_cast<std::size_t>(winner)];
  }
  std::vector<TokenId> tokens(layer.vocab());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto wins_of = [&wins](TokenId token) { return wins[static_cast<std::size_t>(token)]; };
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](TokenId a, TokenId b) { return wins_of(a) > wins_of(b); });
  const auto winners = static_cast<std::size_t>(
      std::find_if(tokens.begin(), tokens.end(), [&](TokenId token) { return wins_of(token) == 0; }) -
      tokens.begin());
  tokens.resize(std::min(winners, options.entry_points));
  return tokens;
}

}  // namespace

Candidates FgdScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t ef = std::max(query.effort == 0 ? index_->ef_search() : query.effort, query.k);
  const std::size_t limit = index_->rows().count / kWorthwhileShare;
  Candidates candidates;
  candidates.everything = true;
  if (ef >= limit) return candidates;

  Search search(*index_, query, ef, limit, workspace);
  candidates.everything = !search.run();
  candidates.screened = search.scored();
  candidates.bytes_read = search.bytes_read();
  if (!candidates.everything) candidates.ids = search.found(limit);
  return candidates;
}

std::size_t FgdScreener::index_bytes() const {
  return index_->bytes();
}

std::size_t FgdScreener::reachable() const {
  return index_->graph().reachable();
}

void FgdScreener::save(IndexWriter& out) const {
  out.kind(kName);
  index_->save(out);
}

std::unique_ptr<Fgd> Fgd::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<Fgd> Fgd::load(const IndexReader& in) {
  return std::unique_ptr<Fgd>(new Fgd(in.layer(), FgdScreener(std::make_shared<const FgdIndex>(in))));
}

std::unique_ptr<Fgd> Fgd::build(SoftmaxLayer layer, const Contexts& contexts, const FgdOptions& options) {
  check_options(layer, options);
  if (contexts.count > 0) check_contexts(layer, contexts, kName);
  FgdScreener screener(
      std::make_shared<const FgdIndex>(layer, options, frequent_winners(layer, contexts, options)));
  return std::unique_ptr<Fgd>(new Fgd(std::move(layer), std::move(screener)));
}

double top_k_softmax_error(double log_z, double highest_outside, std::size_t outside) {
  if (outside == 0) return 0.0;
  return kernels::log_add_exp(log_z, highest_outside + std::log(static_cast<double>(outside))) - log_z;
}

double top_k_softmax_error(const TopK& answer, std::size_t vocab) {
  if (answer.normalizer == Normalizer::exact) return 0.0;
  if (answer.size() == 0 || answer.normalizer != Normalizer::candidates) {
    throw std::invalid_argument("top_k_softmax_error: the answer has no tokens, or no top-K softmax");
  }
  const std::size_t summed = std::min(answer.work.candidates, vocab);
  return top_k_softmax_error(answer.log_z, static_cast<double>(answer.logits.back()), vocab - summed);
}

}  // namespace topksoftmax
