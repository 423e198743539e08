// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/deviation.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/proven_place.hpp"
#include "topksoftmax/certified/sampled_mass.hpp"
#include "topksoftmax/certified/tokens_reaching.hpp"
#include "topksoftmax/certified/upper_bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_bounds.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A backend whose index bounds the rows of its layer: all that bounds tell beside the best tokens, where
/// they are proven.
template <class Backend>
class BoundedSoftmax : public Backend, private VocabularyBounds {
 public:
  using Backend::Backend;

  /// Whether bounds are proven: without failure_probability.
  bool certifies() const override { return bounds().is_proven(); }

 private:
  virtual const CertifiedIndex& bounds() const = 0;
  const VocabularyBounds* vocabulary_bounds() const override { return this; }

  BoundedQuery bound(const Query& query, Workspace& workspace) const {
    return bounded(this->layer(), bounds(), query, workspace);
  }

  void do_bound_each(const QueryBatch& queries, std::span<Workspace* const> own,
                     const Workspace& workspace) const override {
    if (certifies() && bounds().shares_scans()) bound_each(bounds(), queries, own, workspace);
  }

  bool do_upper_bounds(const Query& query, std::span<const TokenId> rows, Workspace& workspace,
                       float* most) const override {
    return certifies() && upper_bounds(bound(query, workspace), rows, most);
  }

  bool do_likely_tokens(const Query& query, std::size_t count, Workspace& workspace,
                        std::vector<ScoredToken>& rows) const override {
    return certifies() && likely_tokens(bound(query, workspace), count, rows);
  }

  bool do_tokens_reaching(const Query& query, float least, Workspace& workspace,
                          BoundedTokens& rows) const override {
    return certifies() && tokens_reaching(bound(query, workspace), least, rows);
  }

  std::optional<NucleusPlace> do_place_in_nucleus(const Query& query, const ScoredToken& token,
                                                  const Nucleus& nucleus,
                                                  Workspace& workspace) const override {
    if (!certifies()) return std::nullopt;
    return place_in_nucleus(bound(query, workspace), token, nucleus);
  }

  std::optional<SampledLogZ> do_sample_log_z(const Query& query, const SampledLogZOptions& how,
                                             Workspace& workspace) const override {
    if (!certifies()) return std::nullopt;
    return sample_log_z(bound(query, workspace), how);
  }

  std::optional<LogitDeviation> do_logit_deviation(const Query& query, Workspace& workspace) const override {
    return logit_deviation(this->layer(), bounds(), query, workspace);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
