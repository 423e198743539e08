// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_candidates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"

namespace topksoftmax {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Beyond this share of the vocabulary nothing is gained by screening.
constexpr std::size_t kWorthwhileShare = 4;

/// How much lower the cut is for the first attempt at a narrower interval of log Z; twice as much every time.
constexpr float kFirstStep = 1.0F;

/// Rows among which likely ones are sought become so many times more while too few of them are allowed.
constexpr std::size_t kMoreLikely = 8;

/// log Σ exp of the candidates' logits, which stay in the workspace and with the candidates.
double score(const SoftmaxLayer& layer, const Query& query, Candidates& candidates, Workspace& workspace) {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t count = candidates.ids.size();
  auto* const logits = workspace.logits.get<float>(count);
  kernel.scan_gathered(layer.rows(), candidates.ids.data(), count, query.h, logits);
  candidates.logits = logits;
  const float max = kernel.max(logits, count);
  return static_cast<double>(max) + std::log(kernel.sum_exp(logits, count, max));
}

/// Rows with high estimates that are scored to find a threshold.
std::size_t seeds(const Query& query) {
  return query.k + query.k / 2 + 4;
}

/// The k-th best logit of the rows with the highest estimates; −∞ if fewer than k may be returned.
float kth_of_best(const PrefixIndex::BoundedRows& rows, const SoftmaxLayer& layer, const PrefixIndex& index,
                  const Query& query, Workspace& workspace, std::size_t& bytes_read) {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t wanted = std::min(seeds(query), index.rows());
  auto* const ids = workspace.candidates.get<TokenId>(rows.count + kernels::kSlack);
  auto* const maxima = workspace.logits.get<float>(rows.count / 8 + 2 * kernels::kSlack);
  const std::size_t found = kernel.promising(rows.estimates, rows.count, wanted, maxima, ids);
  bytes_read += rows.bytes_read;
  if (found < query.k) return kNothing;
  const std::size_t count = std::min(found, 4 * wanted);
  if (count < found) {  // estimates that are equal, or far from most, let many pass
    std::nth_element(ids, ids + count, ids + found, [&rows](TokenId a, TokenId b) {
      const float x = rows.estimates[a];
      const float y = rows.estimates[b];
      return x != y ? x > y : a < b;
    });
  }
  for (std::size_t i = 0; i < count; ++i) ids[i] = index.token(rows.place(static_cast<std::size_t>(ids[i])));
  auto* const logits = workspace.logits.get<float>(count);
  kernel.scan_gathered(layer.rows(), ids, count, query.h, logits);
  bytes_read += layer.rows().bytes(count);
  if (count <= kernels::kFew) return kernel.kth_of_few(logits, count, query.k);
  std::nth_element(logits, logits + (query.k - 1), logits + count, std::greater<>());
  return logits[query.k - 1];
}

}  // namespace

bool is_worth_bounding(const Query& query, const PrefixIndex& index) {
  const bool exact_log_z = query.probabilities && query.log_z_tolerance == 0.0;
  return query.k <= index.rows() / kWorthwhileShare && !exact_log_z;
}

float threshold_from_best(const SoftmaxLayer& layer, const PrefixIndex& index, const Query& query,
                          const PrefixIndex::Bounds& bounds, Workspace& workspace, std::size_t& bytes_read) {
  // Where many tokens are forbidden, it takes more rows to find so many that are not.
  for (std::size_t likely = std::min(seeds(query), index.rows());; likely *= kMoreLikely) {
    const PrefixIndex::BoundedRows rows = index.likely_rows(query, bounds, likely, workspace);
    const float threshold = kth_of_best(rows, layer, index, query, workspace, bytes_read);
    if (threshold > kNothing || likely >= index.rows()) return threshold;
  }
}

float threshold_from_reaching(float threshold, const SoftmaxLayer& layer, const PrefixIndex& index,
                              const Query& query, const PrefixIndex::Bounds& bounds, Workspace& workspace,
                              std::size_t& bytes_read) {
  const PrefixIndex::BoundedRows rows = index.rows_reaching(query, bounds, threshold, workspace);
  return std::max(threshold, kth_of_best(rows, layer, index, query, workspace, bytes_read));
}

Candidates candidates_reaching(float threshold, const SoftmaxLayer& layer, const PrefixIndex& index,
                               const Query& query, const PrefixIndex::Bounds& bounds, std::size_t most,
                               Workspace& workspace) {
  Candidates candidates;
  candidates.certified = true;
  candidates.screened = index.bounds_scanned();
  candidates.bytes_read = index.bytes_scanned();
  const bool any_width = std::isinf(query.log_z_tolerance);
  const bool hopeless = !bounds.usable || !(threshold > std::numeric_limits<float>::lowest());
  float step = kFirstStep;
  for (float cut = threshold; !hopeless; cut -= step, step *= 2.0F) {
    const PrefixIndex::Survivors survivors = index.survivors(query, bounds, cut, most, workspace);
    candidates.bytes_read += survivors.bytes_read;
    candidates.screened += survivors.bounded;
    if (survivors.ids.size() > std::min(most, index.rows() / kWorthwhileShare)) break;
    most = index.rows();  // a lower cut lets more pass, and says nothing of the threshold
    candidates.ids = survivors.ids;
    if (!query.probabilities) return candidates;
    candidates.normalizer = Normalizer::interval;
    candidates.outside_low = static_cast<double>(cut) + std::log(survivors.outside.low);
    // None of them reaches the cut, which is more than the sum tells where it could not be bounded.
    candidates.outside_high = static_cast<double>(cut) +
                              std::log(std::min(survivors.outside.high, static_cast<double>(index.rows())));
    candidates.outside = index.outside_between(candidates.outside_low, candidates.outside_high);
    if (any_width) return candidates;
    const auto [low, high] = log_z_bounds(candidates, score(layer, query, candidates, workspace));
    if (high - low <= query.log_z_tolerance) return candidates;
  }
  candidates.everything = true;
  return candidates;
}

}  // namespace topksoftmax
