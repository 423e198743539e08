// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/adaptive/build.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_adaptive() {
  const auto build = [](const BuildMaterial& from, const AdaptiveSoftmaxOptions& options) {
    return AdaptiveSoftmax::build(from.layer, from.contexts, options, from.executor);
  };
  return {.name = "adaptive",
          .kind = std::string(AdaptiveSoftmax::kind),
          .summary = "Adaptive softmax: the most frequent tokens, and tiers of rarer ones that may still win",
          .advice = {.place = 60,
                     .names = "`AdaptiveSoftmax`",
                     .answers = "approximate; exact, and hardly faster, without contexts",
                     .learns_from = "contexts; token counts help",
                     .take_when = "a few tokens make most of the text"},
          .builder = builder<AdaptiveSoftmaxOptions>(
              {"AdaptiveSoftmax::build", "layer, contexts", "topksoftmax/adaptive/build.hpp"}, build),
          .loader = &load_as<AdaptiveSoftmax>,
          .axes = {{.option = "head", .values = axis::vocab_shares(100, 2, 9)}},
          .tuning = TuningPlan{.turn = 45,
                               .models = OptionAxis{.option = "head",
                                                    .values = axis::vocab_shares_within(100, 2, 8)}},
          .wrapped = {.settings = {{"outside_sample", "0"}}},
          .tensors = detail::with_outside_mass(
              {{"ids", "I32", "[V]", "tokens, the most frequent first"},
               {"starts", "U64", "[tiers + 1]", "where each tier begins among them, and V"},
               {"gates", "F32", "[tiers, d]",
                "a tier is scored if g·h + offset + reach·‖h‖ is at least the k-th best logit"},
               {"gates.offsets", "F32", "[tiers]", "each gate's offset"},
               {"gates.reach", "F32", "[tiers]", "each gate's reach"}},
              "tiers")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
