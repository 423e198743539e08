// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a token's logit loses for having been written before, as inference engines define it.
struct Penalties {
  /// Above 0: a logit above 0 is divided by it, any other multiplied (CTRL, section 4.1; for both signs as
  /// in Hugging Face and llama.cpp). 1: none.
  double repetition = 1.0;
  double presence = 0.0;   ///< taken off once …
  double frequency = 0.0;  ///< … and once for each time that the token was written
};

/// Throws std::invalid_argument unless all are finite and `repetition` is above 0.
void check(const Penalties& penalties);

/// The biases that make the logits of a history's tokens what penalties make of them. Pass them on as
/// QueryOptions::logit_bias, of the same context: every backend's answers, log Z, bounds and draws are then
/// those of the penalised logits, within a rounding.
class PenaltyBiases {
 public:
  /// Throws std::invalid_argument as check() does.
  explicit PenaltyBiases(const Penalties& penalties) : penalties_(penalties) { check(penalties); }

  /// For the context h [d] after `history`, whose tokens may repeat. Biases of `query` are added first, and
  /// are among the result; its mask is ignored. A token without a row keeps its logit, −∞. Valid until the
  /// next call. Cost: d weights for each distinct token of the history. Throws std::invalid_argument as a
  /// query does, and for an id that is no token.
  std::span<const TokenBias> operator()(const TopKSoftmax& head, std::span<const float> h,
                                        std::span<const TokenId> history, const QueryOptions& query,
                                        const Workspace& workspace);

 private:
  float bias_for(float logit, std::size_t count) const;

  Penalties penalties_;
  std::vector<TokenId> sorted_;
  std::vector<TokenId> ids_;  ///< distinct, ascending
  std::vector<std::size_t> counts_;
  std::vector<float> logits_;
  std::vector<TokenBias> biases_;
};

inline void check(const Penalties& penalties) {
  const auto refuse = [](const char* name, double value, const char* limit) {
    throw std::invalid_argument("penalties: " + std::string(name) + " is " + detail::value_text(value) +
                                "; it must be " + limit);
  };
  if (!(penalties.repetition > 0.0 && std::isfinite(penalties.repetition)))
    refuse("repetition", penalties.repetition, "finite and above 0");
  if (!std::isfinite(penalties.presence)) refuse("presence", penalties.presence, "finite");
  if (!std::isfinite(penalties.frequency)) refuse("frequency", penalties.frequency, "finite");
}

/// The bias of a token that was written `count` times.
inline float PenaltyBiases::bias_for(float logit, std::size_t count) const {
  if (std::isinf(logit)) return 0.0F;  // it has no row
  const auto within = [](double x) {   // what no sum of logits leaves, so that nothing infinite is added up
    constexpr double most = std::numeric_limits<float>::max();
    return std::clamp(x, -most, most);
  };
  const auto z = static_cast<double>(logit);
  const double repeated = within(z > 0.0 ? z / penalties_.repetition : z * penalties_.repetition);
  const double written = within(penalties_.frequency * static_cast<double>(count));
  return static_cast<float>(within(repeated - within(penalties_.presence) - written)) - logit;
}

inline std::span<const TokenBias> PenaltyBiases::operator()(const TopKSoftmax& head, std::span<const float> h,
                                                            std::span<const TokenId> history,
                                                            const QueryOptions& query,
                                                            const Workspace& workspace) {
  sorted_.assign(history.begin(), history.end());
  std::sort(sorted_.begin(), sorted_.end());
  ids_.clear();
  counts_.clear();
  for (const TokenId id : sorted_) {
    if (ids_.empty() || ids_.back() != id) {
      ids_.push_back(id);
      counts_.push_back(0);
    }
    ++counts_.back();
  }
  logits_.resize(ids_.size());
  head.logits_of(h, ids_, {.logit_bias = query.logit_bias}, workspace, logits_);

  biases_.clear();
  auto given = query.logit_bias.begin();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    while (given != query.logit_bias.end() && given->id < ids_[i]) biases_.push_back(*given++);
    TokenBias bias = {ids_[i], bias_for(logits_[i], counts_[i])};
    if (given != query.logit_bias.end() && given->id == bias.id) bias.bias += given++->bias;
    bias.bias = kernels::add_bias(bias.bias, 0.0F);
    biases_.push_back(bias);
  }
  biases_.insert(biases_.end(), given, query.logit_bias.end());
  return biases_;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
