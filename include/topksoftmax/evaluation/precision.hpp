// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a backend's answers are held against: the exact top-k of some contexts, and for some of these the
/// exact log Z.
struct GroundTruth {
  std::size_t contexts = 0;  ///< N
  std::size_t k = 0;         ///< tokens a context, at most V

  std::vector<TokenId> ids;  ///< [N×k], the exact top-k of each context, best first

  std::vector<std::size_t> references;  ///< [R], the contexts whose log Z is known, ascending
  std::vector<double> log_z;            ///< [R], in float64 from float64 logits

  /// The exact top-k of context i.
  std::span<const TokenId> top(std::size_t i) const { return std::span(ids).subspan(i * k, k); }
};

/// Asks `Exact` for the min(k, V) best tokens of each of the contexts [N×d], and computes log Z in float64
/// for `references` of them (at most N), evenly spaced. Cost: N·V·d multiply-adds in float32 and
/// references·V·d in float64, on the executor's threads. Throws std::invalid_argument as a query does.
GroundTruth find_ground_truth(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t k,
                              std::size_t references = 1000, const Executor& executor = default_executor());

inline GroundTruth find_ground_truth(const SoftmaxLayer& layer, const ConstRows& contexts, std::size_t k,
                                     std::size_t references = 1000,
                                     const Executor& executor = default_executor()) {
  return find_ground_truth(layer, Contexts::of(contexts), k, references, executor);
}

/// A backend's answers to contexts [N×d], asked `batch` at a time (the last batch may be smaller), each batch
/// on one thread, all batches on the executor's threads.
std::vector<TopK> answer_contexts(const TopKSoftmax& backend, const Contexts& contexts,
                                  const QueryOptions& options, std::size_t batch = 1,
                                  const Executor& executor = default_executor());

inline std::vector<TopK> answer_contexts(const TopKSoftmax& backend, const ConstRows& contexts,
                                         const QueryOptions& options, std::size_t batch = 1,
                                         const Executor& executor = default_executor()) {
  return answer_contexts(backend, Contexts::of(contexts), options, batch, executor);
}

/// How far log-probabilities are from those of the full softmax in float64, over tokens: |difference| in
/// nats; NaN for no token.
struct LogProbError {
  /// The median.
  double median = std::numeric_limits<double>::quiet_NaN();
  double p99 = std::numeric_limits<double>::quiet_NaN();  ///< the 99th percentile
  /// The largest.
  double max = std::numeric_limits<double>::quiet_NaN();
};

/// How good a backend's answers are, and what work they took.
struct Precision {
  /// P@1 … P@k: P@j = |A_j ∩ S_j| / j, the mean over the contexts, A_j being the first j tokens answered and
  /// S_j the exact j best.
  std::vector<double> at;

  double certified_rate = 0.0;   ///< share of the answers that are certified
  double fell_back_rate = 0.0;   ///< share of the answers for which the whole vocabulary was scanned
  double repaired_rate = 0.0;    ///< share of the answers that Certify had to repair
  double bytes_read_mean = 0.0;  ///< QueryWork::bytes_read
  double screened_mean = 0.0;    ///< QueryWork::screened
  double candidates_mean = 0.0;  ///< QueryWork::candidates

  /// Of the tokens that were answered to the ground truth's references, with probabilities.
  LogProbError log_prob_error = {};

  /// The mean of log_z_high − log_z_low over the answers with Normalizer::interval; NaN if there are none.
  double log_z_width_mean = std::numeric_limits<double>::quiet_NaN();
};

/// Compares answers to contexts [N×d] with their ground truth. Cost: N·k·log k, and a product of d values for
/// each token answered to a reference. Throws std::invalid_argument where their numbers differ.
Precision measure_precision(const SoftmaxLayer& layer, const Contexts& contexts, const GroundTruth& truth,
                            std::span<const TopK> answers);

inline Precision measure_precision(const SoftmaxLayer& layer, const ConstRows& contexts,
                                   const GroundTruth& truth, std::span<const TopK> answers) {
  return measure_precision(layer, Contexts::of(contexts), truth, answers);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts whose float64 logits are computed together: 4,096 rows of W at a time.
inline constexpr std::size_t kReferenceBlock = 32;

/// log Z of the referenced contexts, in float64 throughout, some rows of W at a time.
inline std::vector<double> reference_log_z(const SoftmaxLayer& layer, const Contexts& contexts,
                                           const std::vector<std::size_t>& references,
                                           const Executor& executor) {
  const Eigen::VectorXf b = layer.biases();
  std::vector<double> log_z(references.size(), -std::numeric_limits<double>::infinity());
  for_each_part(executor, references.size(), kReferenceBlock, [&](std::size_t first, std::size_t count) {
    Eigen::MatrixXd H(static_cast<Eigen::Index>(contexts.dim), static_cast<Eigen::Index>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const Eigen::Map<const Eigen::VectorXf> h(contexts.row(references[first + i]), H.rows());
      H.col(static_cast<Eigen::Index>(i)) = h.cast<double>();
    }
    for (std::size_t row = 0; row < layer.vocab(); row += kLayerRowsAtOnce) {
      const std::size_t some = std::min(kLayerRowsAtOnce, layer.vocab() - row);
      const Eigen::MatrixXd W = rows_from(layer, row, some).cast<double>();
      const Eigen::VectorXd biases = b.segment(static_cast<Eigen::Index>(row), W.rows()).cast<double>();
      Eigen::MatrixXd logits = (W * H).colwise() + biases;
      if (!layer.transform().is_identity()) logits = logits.unaryExpr(std::cref(layer.transform()));
      for (std::size_t i = 0; i < count; ++i) {
        const auto column = logits.col(static_cast<Eigen::Index>(i)).array();
        const double max = column.maxCoeff();
        const double of_rows = max + std::log((column - max).exp().sum());
        log_z[first + i] = kernels::log_add_exp(log_z[first + i], of_rows);
      }
    }
  });
  return log_z;
}

/// log p of a token in float64, under the full softmax.
inline double reference_log_prob(const SoftmaxLayer& layer, const float* context, TokenId id, double log_z) {
  Eigen::VectorXf row(static_cast<Eigen::Index>(layer.dim()));
  layer.copy_row(static_cast<std::size_t>(id), row.data());
  const Eigen::Map<const Eigen::VectorXf> h(context, row.size());
  const double product = row.cast<double>().dot(h.cast<double>().eval());
  const double bias = layer.has_bias() ? static_cast<double>(layer.rows().bias[id]) : 0.0;
  return layer.transform()(product + bias) - log_z;
}

/// A token, and how many stand before it in a list.
using Rank = std::pair<TokenId, std::size_t>;

/// The ranks of a list's tokens, by token. Of a token that occurs twice, the first counts.
inline void rank_tokens(std::span<const TokenId> tokens, std::vector<Rank>& ranks) {
  ranks.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) ranks.emplace_back(tokens[i], i);
  std::sort(ranks.begin(), ranks.end());
  const auto same = [](const Rank& a, const Rank& b) { return a.first == b.first; };
  ranks.erase(std::unique(ranks.begin(), ranks.end(), same), ranks.end());
}

/// P@1 … P@k over all answers: a token counts from the prefix on that has it in both lists.
inline std::vector<double> precision_at(const GroundTruth& truth, std::span<const TopK> answers) {
  std::vector<std::size_t> found(truth.k, 0);  // by the last of its two ranks
  std::vector<Rank> answered;
  std::vector<Rank> exact;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::span<const TokenId> ids = answers[i].ids;
    rank_tokens(ids.first(std::min(truth.k, ids.size())), answered);
    rank_tokens(truth.top(i), exact);
    for (auto a = answered.begin(), e = exact.begin(); a != answered.end() && e != exact.end();) {
      if (a->first < e->first) {
        ++a;
      } else if (e->first < a->first) {
        ++e;
      } else {
        ++found[std::max(a->second, e->second)];
        ++a;
        ++e;
      }
    }
  }
  std::vector<double> at(truth.k);
  const auto n = static_cast<double>(std::max<std::size_t>(answers.size(), 1));
  std::size_t common = 0;
  for (std::size_t k = 1; k <= truth.k; ++k) {
    common += found[k - 1];
    at[k - 1] = static_cast<double>(common) / (n * static_cast<double>(k));
  }
  return at;
}

/// The rates and means of the answers' own accounts.
inline void add_means(std::span<const TopK> answers, Precision& result) {
  double width = 0.0;
  std::size_t intervals = 0;
  for (const TopK& answer : answers) {
    result.certified_rate += answer.certified ? 1.0 : 0.0;
    result.fell_back_rate += answer.work.fell_back ? 1.0 : 0.0;
    result.repaired_rate += answer.work.repaired ? 1.0 : 0.0;
    result.bytes_read_mean += static_cast<double>(answer.work.bytes_read);
    result.screened_mean += static_cast<double>(answer.work.screened);
    result.candidates_mean += static_cast<double>(answer.work.candidates);
    if (answer.normalizer == Normalizer::interval) {
      width += answer.log_z_high - answer.log_z_low;
      ++intervals;
    }
  }
  const auto n = static_cast<double>(std::max<std::size_t>(answers.size(), 1));
  for (double* mean : {&result.certified_rate, &result.fell_back_rate, &result.repaired_rate,
                       &result.bytes_read_mean, &result.screened_mean, &result.candidates_mean}) {
    *mean /= n;
  }
  if (intervals > 0) result.log_z_width_mean = width / static_cast<double>(intervals);
}

/// Precision::log_prob_error.
inline LogProbError log_prob_error(const SoftmaxLayer& layer, const Contexts& contexts,
                                   const GroundTruth& truth, std::span<const TopK> answers) {
  std::vector<double> errors;
  for (std::size_t r = 0; r < truth.references.size(); ++r) {
    const std::size_t context = truth.references[r];
    const TopK& answer = answers[context];
    if (answer.normalizer == Normalizer::none) continue;  // it has no probabilities
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const double reference =
          reference_log_prob(layer, contexts.row(context), answer.ids[i], truth.log_z[r]);
      errors.push_back(std::abs(answer.log_prob(i) - reference));
    }
  }
  return {.median = quantile(errors, 0.5), .p99 = quantile(errors, 0.99), .max = quantile(errors, 1.0)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline GroundTruth find_ground_truth(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t k,
                                     std::size_t references, const Executor& executor) {
  GroundTruth truth;
  truth.contexts = contexts.count;
  truth.k = std::min(k, layer.vocab());
  const Exact exact(layer);
  const std::vector<TopK> answers =
      answer_contexts(exact, contexts, {.k = truth.k, .probabilities = false}, 1, executor);
  truth.ids.reserve(contexts.count * truth.k);
  for (const TopK& answer : answers) truth.ids.insert(truth.ids.end(), answer.ids.begin(), answer.ids.end());

  const std::size_t known = std::min(references, contexts.count);
  truth.references.reserve(known);
  for (std::size_t r = 0; r < known; ++r) truth.references.push_back(r * contexts.count / known);
  if (known > 0) truth.log_z = detail::reference_log_z(layer, contexts, truth.references, executor);
  return truth;
}

inline std::vector<TopK> answer_contexts(const TopKSoftmax& backend, const Contexts& contexts,
                                         const QueryOptions& options, std::size_t batch,
                                         const Executor& executor) {
  if (batch == 0) throw std::invalid_argument("answer_contexts: batch is 0; it must be at least 1");
  std::vector<TopK> answers(contexts.count);
  std::vector<Workspace> workspaces(executor.threads());
  for_each_part_on(executor, workspaces.size(), contexts.count, batch,
                   [&](std::size_t first, std::size_t size, std::size_t thread) {
                     backend.query_batch(contexts.row(first), size, contexts.dim, contexts.stride, options,
                                         {&workspaces[thread], 1}, {answers.data() + first, size});
                   });
  return answers;
}

inline Precision measure_precision(const SoftmaxLayer& layer, const Contexts& contexts,
                                   const GroundTruth& truth, std::span<const TopK> answers) {
  if (answers.size() != truth.contexts || contexts.count != truth.contexts) {
    throw std::invalid_argument("measure_precision: there are " + std::to_string(contexts.count) +
                                " contexts, " + std::to_string(answers.size()) +
                                " answers and the ground truth of " + std::to_string(truth.contexts) +
                                "; they must be as many");
  }
  Precision result;
  result.at = detail::precision_at(truth, answers);
  detail::add_means(answers, result);
  result.log_prob_error = detail::log_prob_error(layer, contexts, truth, answers);
  return result;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
