// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The mass outside of a screener's candidates, learned from contexts: log Σ exp(logit) over the tokens that
/// are not candidates ≈ a_g + w_g·h, a linear model for each group of contexts that the screener tells apart
/// (Candidates::group), or part of the tokens; by ridge regression: see learning/learn_outside_mass.hpp.
///
/// It is of use to queries that forbid no more than 16 + V/512 tokens: these are scored, and what they weigh
/// is taken off.
///
/// Cost of a query: d weights, and d for each token that is forbidden. Keeps 4·groups·(d + 1) bytes.
class TOPKSOFTMAX_EXPORT OutsideMass {
 public:
  /// w_g and a_g of every group, and how the model was learned.
  struct Learned {
    detail::StoredRows models;  ///< finite
    LogZError error;            ///< on contexts that were held out
    double most = 0.0;          ///< the largest log(mass outside / mass of the candidates) met
    std::size_t sample = 0;     ///< contexts that were looked at
  };

  /// The array that load() finds the weights in.
  static constexpr std::string_view kWeights = "outside.weights";
  /// The tensor of error(), median first, in an index.
  static constexpr std::string_view kError = "outside.error";

  /// What contexts have taught.
  explicit OutsideMass(Learned learned) : learned_(std::move(learned)) {}

  /// Groups of contexts, or parts of the tokens, each with a model of its own.
  std::size_t groups() const { return learned_.models.count(); }
  /// How far log Z was off on contexts that were held out.
  const LogZError& error() const { return learned_.error; }
  /// What an estimate may be at the most, above log Σ exp over the candidates.
  double most() const { return learned_.most; }
  /// w_g and a_g of every group.
  const detail::StoredRows& models() const { return learned_.models; }
  /// All that contexts have taught.
  const Learned& learned() const { return learned_; }

  /// a_g + w_g·h for a group below groups().
  double log_mass(std::size_t group, const float* h) const {
    float sum = 0.0F;
    kernels::scan(learned_.models.rows(), group, 1, h, &sum);
    return static_cast<double>(sum);
  }

  /// Whether it is of use to a query: log Z is wanted, and over all tokens, or all but a few, which are taken
  /// off. Nothing is learned of other masks.
  static bool serves(const Query& query) {
    return query.probabilities && (query.edits.allowed.empty() || query.forbids_few);
  }

  /// Lets the candidates of a query count the mass outside of them. Leaves them as they are where it is of no
  /// use, and where it was not learned: for candidates of no group.
  void count(const Query& query, Candidates& candidates) const {
    if (serves(query) && candidates.group < groups())
      count(log_mass(candidates.group, query.h), 1, candidates);
  }

  /// Lets candidates count exp(outside), for which so many of the models were read.
  void count(double outside, std::size_t models, Candidates& candidates) const {
    candidates.outside = outside;
    candidates.most_outside = learned_.most;
    candidates.normalizer = Normalizer::learned;
    candidates.bytes_read += learned_.models.rows().bytes(models);
  }

  /// Bytes of the models.
  std::size_t bytes() const { return learned_.models.rows().bytes(groups()); }

  /// Puts what load() reads into `out`.
  void save(IndexWriter& out) const {
    const detail::StoredRows& models = learned_.models;
    out.option(kSample, learned_.sample);
    out.array(kWeights, {models.count(), models.dim()}, models.weights());
    out.array(kOffsets, {models.count()}, models.biases());
    out.array(kError, {3},
              StoredArray<double>::own(
                  std::vector<double>{learned_.error.median, learned_.error.p99, learned_.most}));
  }

  /// What save() has written, of so many groups; nothing where nothing was learned, as in all indexes of
  /// version 0.1.
  static std::optional<OutsideMass> load(const IndexReader& in, std::size_t groups) {
    return load(in, groups, in.dim());
  }

  /// The same where it is not linear in the context but in `features` values (IndexReader::any: in any
  /// number).
  static std::optional<OutsideMass> load(const IndexReader& in, std::size_t groups, std::size_t features) {
    if (!in.has_option(kSample) && !in.has_tensor(kWeights)) return std::nullopt;
    Learned learned;
    in.option(kSample, learned.sample);
    const StoredArray<float> weights = finite(in, kWeights, in.floats(kWeights, {groups, features}));
    const StoredArray<float> offsets = finite(in, kOffsets, in.floats(kOffsets, {groups}));
    if (weights.size() == 0) throw in.damaged(kWeights, "is empty");
    learned.models = detail::StoredRows(weights, weights.size() / groups, offsets);
    const StoredArray<double> error = in.doubles(kError, {3});
    for (const double value : error) {
      if (!std::isfinite(value)) throw in.damaged(kError, "has a value that is not finite");
    }
    learned.error = {.median = error[0], .p99 = error[1]};
    learned.most = error[2];
    return OutsideMass(std::move(learned));
  }

 private:
  static constexpr std::string_view kSample = "outside_sample";
  static constexpr std::string_view kOffsets = "outside.offsets";

  static StoredArray<float> finite(const IndexReader& in, std::string_view name, StoredArray<float> values) {
    if (detail::all_finite(values.data(), values.size())) return values;
    throw in.damaged(name, "has a value that is not finite");
  }

  Learned learned_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
