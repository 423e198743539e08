// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/logit_deviation.hpp"
#include "topksoftmax/nucleus.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a backend with bounds of all rows tells beside the best ones. Each member answers the question of
/// TopKSoftmax of its name, for rows; it says so where it has nothing to tell.
class TOPKSOFTMAX_EXPORT VocabularyBounds {
 public:
  virtual void do_bound_each(const QueryBatch& queries, std::span<Workspace* const> own,
                             const Workspace& workspace) const = 0;
  /// What it says of forbidden rows does not matter.
  virtual bool do_upper_bounds(const Query& query, std::span<const TokenId> rows, Workspace& workspace,
                               float* bounds) const = 0;
  virtual bool do_likely_tokens(const Query& query, std::size_t count, Workspace& workspace,
                                std::vector<ScoredToken>& rows) const = 0;
  virtual bool do_tokens_reaching(const Query& query, float least, Workspace& workspace,
                                  BoundedTokens& rows) const = 0;
  virtual std::optional<NucleusPlace> do_place_in_nucleus(const Query& query, const ScoredToken& row,
                                                          const Nucleus& nucleus,
                                                          Workspace& workspace) const = 0;
  /// Some row being allowed, as for logit_deviation().
  virtual std::optional<SampledLogZ> do_sample_log_z(const Query& query, const SampledLogZOptions& how,
                                                     Workspace& workspace) const = 0;
  virtual std::optional<LogitDeviation> do_logit_deviation(const Query& query,
                                                           Workspace& workspace) const = 0;

 protected:
  ~VocabularyBounds() = default;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
