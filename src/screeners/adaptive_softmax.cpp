// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/adaptive_softmax.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunks.hpp"
#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "round_outwards.hpp"
#include "screeners/frequency_order.hpp"
#include "stored_rows.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "training/check_contexts.hpp"
#include "training/evenly_spaced.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::string_view kName = "adaptive";

/// Products beyond this could leave the range of floats on the way.
constexpr double kLargestProduct = 1e30;

/// What one product of floats may lose where it is smaller than floats can be.
constexpr double kLostProduct = 0x1p-149;

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("head", options.head);
  visit("tail_tiers", options.tail_tiers);
  visit("caution", options.caution);
  visit("context_sample", options.context_sample);
}

/// The options with what they leave open chosen; throws Error for unusable ones.
AdaptiveSoftmaxOptions chosen(AdaptiveSoftmaxOptions options, const SoftmaxLayer& layer) {
  options.head = options.head.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  const auto refuse = [](const std::string& what, const std::string& limit) {
    throw Error("adaptive: " + what + "; it must be " + limit);
  };
  if (*options.head < 1 || *options.head > layer.vocab()) {
    refuse("head is " + std::to_string(*options.head), "between 1 and V = " + std::to_string(layer.vocab()));
  }
  if (options.tail_tiers < 1) refuse("tail_tiers is 0", "at least 1");
  if (!(options.caution >= 0.0 && options.caution <= 1.0)) {
    refuse("caution is " + std::to_string(options.caution), "between 0 and 1");
  }
  if (options.context_sample < 1) refuse("context_sample is 0", "at least 1");
  return options;
}

}  // namespace

/// The tokens by falling frequency, the head first, and a gate for each tier of the others.
class AdaptiveTiers {
 public:
  AdaptiveTiers(const SoftmaxLayer& layer, const AdaptiveSoftmaxOptions& options, const Contexts& contexts)
      : options_(chosen(options, layer)),
        ids_(StoredArray<TokenId>::own(frequency_order(layer, options.counts, kName))) {
    options_.counts.clear();  // the order is all that is kept of them
    const std::size_t head = *options_.head;
    const std::size_t tail = ids_.size() - head;
    std::vector<std::uint64_t> starts;
    for (std::size_t t = 0; t <= size(); ++t) starts.push_back(head + (size() == 0 ? 0 : t * tail / size()));
    starts_ = StoredArray<std::uint64_t>::own(std::move(starts));
    Gates gates;
    gates.weights.resize(static_cast<Index>(size()), static_cast<Index>(layer.dim()));
    gates.offsets.resize(static_cast<Index>(size()));
    gates.reach.assign(size(), 0.0F);
    if (size() > 0 && contexts.count > 0) {
      learn_gates(layer, contexts, gates);
    } else if (size() > 0) {
      bound_gates(layer, gates);
    }
    gates_ = StoredRows(std::move(gates.weights), std::move(gates.offsets));
    reach_ = StoredArray<float>::own(std::move(gates.reach));
    longest_ = longest_row();
  }

  explicit AdaptiveTiers(const IndexReader& in) {
    visit_options(options_, in.options());
    in.check([&] { options_ = chosen(options_, in.layer()); });
    ids_ = in.distinct_tokens("ids", {in.vocab()});
    starts_ = in.offsets("starts", {size() + 1}, in.vocab(), *options_.head);
    gates_ =
        StoredRows(in.floats("gates", {size(), in.dim()}), in.dim(), in.floats("gates.offsets", {size()}));
    reach_ = in.floats("gates.reach", {size()});
    longest_ = longest_row();
  }

  void save(IndexWriter& out) const {
    visit_options(options_, out.options());
    out.array("ids", {ids_.size()}, ids_);
    out.array("starts", {starts_.size()}, starts_);
    out.array("gates", {gates_.count(), gates_.dim()}, gates_.weights());
    out.array("gates.offsets", {gates_.count()}, gates_.biases());
    out.array("gates.reach", {reach_.size()}, reach_);
  }

  /// Tiers of the tail.
  std::size_t size() const { return std::min(options_.tail_tiers, ids_.size() - *options_.head); }
  std::size_t vocab() const { return ids_.size(); }
  std::span<const TokenId> head() const { return ids_.span().first(starts_[0]); }
  std::span<const TokenId> tier(std::size_t t) const {
    return ids_.span().subspan(starts_[t], starts_[t + 1] - starts_[t]);
  }

  /// What a product with h and its offset says, and how much ‖h‖ adds to it.
  kernels::Rows gates() const { return gates_.rows(); }
  double reach(std::size_t t) const { return static_cast<double>(reach_[t]); }

  /// Whether products with a context of this length stay within the floats, so that gates mean something.
  bool can_judge(double length) const { return length * longest_ < kLargestProduct; }

  std::size_t bytes() const {
    return ids_.size() * sizeof(TokenId) + gates().bytes(size()) + reach_.size() * sizeof(float);
  }

 private:
  struct Gates {
    RowMajorMatrix weights;    ///< [tiers×d]
    Eigen::VectorXf offsets;   ///< [tiers]
    std::vector<float> reach;  ///< [tiers]
  };

  /// No gate is longer, no row of a tier that is bounded, and no row of int8 before it is scaled (but for
  /// √d).
  double longest_row() const {
    double longest = 127.0;
    for (std::size_t t = 0; t < gates_.count(); ++t) {
      const Eigen::Map<const Eigen::VectorXf> gate(gates_.weights().data() + t * gates_.dim(),
                                                   static_cast<Index>(gates_.dim()));
      longest = std::max(longest, gate.cast<double>().norm() + reach(t));
    }
    return longest;
  }

  /// The largest logit of each tier for a context, from the logits of all tokens.
  VectorXd largest_of_tiers(const Eigen::VectorXf& logits) const {
    VectorXd largest(static_cast<Index>(size()));
    for (std::size_t t = 0; t < size(); ++t) {
      float most = -std::numeric_limits<float>::infinity();
      for (const TokenId id : tier(t)) most = std::max(most, logits[id]);
      largest[static_cast<Index>(t)] = static_cast<double>(most);
    }
    return largest;
  }

  void learn_gates(const SoftmaxLayer& layer, const Contexts& contexts, Gates& out) const {
    const RowMajorMatrix sample = evenly_spaced(contexts, options_.context_sample);
    const Index count = sample.rows();
    const Index dim = sample.cols();
    MatrixXd H(count, dim + 1);
    H << sample.cast<double>(), VectorXd::Ones(count);
    MatrixXd largest(count, static_cast<Index>(size()));
    for_each_chunk(static_cast<std::size_t>(count), [&](std::size_t first, std::size_t in_chunk) {
      Eigen::VectorXf logits(static_cast<Index>(layer.vocab()));
      for (std::size_t i = first; i < first + in_chunk; ++i) {
        const auto at = static_cast<Index>(i);
        kernels::active().scan(layer.rows(), 0, layer.vocab(), sample.row(at).data(), logits.data());
        largest.row(at) = largest_of_tiers(logits);
      }
    });
    MatrixXd normal = H.transpose() * H;
    normal.diagonal().array() += 1e-4 * normal.trace() / static_cast<double>(dim + 1);
    const MatrixXd gates = normal.ldlt().solve(H.transpose() * largest);  // [(d + 1)×tiers]
    const MatrixXd missing = largest - H * gates;
    for (Index t = 0; t < missing.cols(); ++t) {
      VectorXd sorted = missing.col(t);
      std::sort(sorted.begin(), sorted.end());
      const auto rank = static_cast<Index>(options_.caution * static_cast<double>(count - 1));
      out.weights.row(t) = gates.col(t).head(dim).cast<float>();
      out.offsets[t] = static_cast<float>(gates(dim, t) + sorted[rank]);
    }
  }

  /// Gates that no logit of their tier is above, whatever is rounded. A row's float32 product x with h
  /// exceeds the gate's, y, by no more than ‖h‖ times the row's distance from the gate's vector and the
  /// roundings of both products; adding a bias rounds in order, so x + b ≤ x + the largest b, and its own
  /// rounding is at most one of each of x, y and that bias. One more is for rows of int8, which copy_row()
  /// rounds.
  void bound_gates(const SoftmaxLayer& layer, Gates& out) const {
    const double share = roundings(layer.dim() + 4);
    Eigen::VectorXf row(static_cast<Index>(layer.dim()));
    for (std::size_t t = 0; t < size(); ++t) {
      const auto at = static_cast<Index>(t);
      VectorXd mean = VectorXd::Zero(row.size());
      float bias = -std::numeric_limits<float>::infinity();
      for (const TokenId id : tier(t)) {
        layer.copy_row(static_cast<std::size_t>(id), row.data());
        mean += row.cast<double>();
        bias = std::max(bias, layer.has_bias() ? layer.rows().bias[id] : 0.0F);
      }
      mean /= static_cast<double>(tier(t).size());
      out.weights.row(at) = mean.cast<float>();
      const VectorXd gate = out.weights.row(at).cast<double>();
      double farthest = 0.0;
      double longest = 0.0;
      for (const TokenId id : tier(t)) {
        layer.copy_row(static_cast<std::size_t>(id), row.data());
        farthest = std::max(farthest, (row.cast<double>() - gate).norm());
        longest = std::max(longest, row.cast<double>().norm());
      }
      out.reach[t] = up((farthest + share * (gate.norm() + longest)) * kOutward);
      const auto top = static_cast<double>(bias);
      out.offsets[at] = up(top + roundings(4) * std::abs(top));
    }
  }

  AdaptiveSoftmaxOptions options_;     ///< with nothing left open
  StoredArray<TokenId> ids_;           ///< [V]
  StoredArray<std::uint64_t> starts_;  ///< [tiers + 1], where tiers of the tail begin
  StoredRows gates_;                   ///< [tiers×d]
  StoredArray<float> reach_;           ///< [tiers]
  double longest_ = 0.0;
};

Candidates AdaptiveSoftmaxScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const AdaptiveTiers& tiers = *tiers_;
  const kernels::Implementation& kernel = kernels::active();
  const auto dim = static_cast<Index>(layer_.dim());
  const double length = Eigen::Map<const Eigen::VectorXf>(query.h, dim).cast<double>().norm() * kOutward;
  if (query.effort > tiers.size() + 1 || !tiers.can_judge(length)) {
    candidates.everything = true;
    return candidates;
  }
  const double lost = kLostProduct * static_cast<double>(dim);
  const std::size_t always = query.effort == 0 ? 0 : query.effort - 1;
  const kernels::Rows gates = tiers.gates();
  auto* const says = workspace.screen[0].get<float>(tiers.size());
  kernel.scan(gates, 0, tiers.size(), query.h, says);

  auto* const ids = workspace.candidates.get<TokenId>(tiers.vocab());
  auto* const logits = workspace.screen[1].get<float>(tiers.vocab());
  // Logits without the query's biases: of the k + bias_count best at least k are as they will be.
  const std::size_t enough = query.k + query.edits.bias_count;
  kernels::TopKHeap best(workspace.screen[2].get<ScoredToken>(enough), enough);
  std::size_t count = 0;
  const auto score = [&](std::span<const TokenId> tokens) {
    std::copy(tokens.begin(), tokens.end(), ids + count);
    kernel.scan_gathered(layer_.rows(), tokens.data(), tokens.size(), query.h, logits + count);
    if (query.edits.allowed == nullptr) {
      kernel.select(logits + count, tokens.data(), tokens.size(), best);
    } else {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const float logit = logits[count + i];
        if (query.edits.allows(tokens[i]) && logit >= best.threshold()) best.push({logit, tokens[i]});
      }
    }
    count += tokens.size();
  };
  score(tiers.head());
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    const double upper = static_cast<double>(says[t]) + tiers.reach(t) * length + lost;
    if (t < always || upper >= static_cast<double>(best.threshold())) score(tiers.tier(t));
  }
  candidates.ids = {ids, count};
  candidates.logits = logits;
  candidates.screened = tiers.size();
  candidates.bytes_read = gates.bytes(tiers.size());
  return candidates;
}

std::size_t AdaptiveSoftmaxScreener::index_bytes() const {
  return tiers_->bytes();
}

void AdaptiveSoftmaxScreener::save(IndexWriter& out) const {
  out.kind(kName);
  tiers_->save(out);
}

std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::load(const std::filesystem::path& path,
                                                       SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::load(const IndexReader& in) {
  auto tiers = std::make_shared<const AdaptiveTiers>(in);
  return std::unique_ptr<AdaptiveSoftmax>(
      new AdaptiveSoftmax(in.layer(), AdaptiveSoftmaxScreener(in.layer(), std::move(tiers))));
}

std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::build(SoftmaxLayer layer, const Contexts& contexts,
                                                        const AdaptiveSoftmaxOptions& options) {
  check_contexts(layer, contexts, kName);
  auto tiers = std::make_shared<const AdaptiveTiers>(layer, options, contexts);
  return std::unique_ptr<AdaptiveSoftmax>(
      new AdaptiveSoftmax(layer, AdaptiveSoftmaxScreener(layer, std::move(tiers))));
}

}  // namespace topksoftmax
