// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_shortlist() {
  const auto build = [](const BuildMaterial& from, const ShortlistOptions& options) {
    return Shortlist::build(from.layer, from.contexts, options, from.executor);
  };
  return {.name = "shortlist",
          .kind = std::string(Shortlist::kind),
          .summary = "The most frequent tokens, and no others",
          .advice = {.place = 70,
                     .names = "`Shortlist`",
                     .answers = "the most frequent tokens, or those that a sentence's words are aligned with",
                     .learns_from = "token counts; an alignment table; contexts help log Z",
                     .take_when = "you translate and have one"},
          .builder = builder<ShortlistOptions>(
              {"Shortlist::build", "layer, contexts", "topksoftmax/shortlist/build.hpp"}, build),
          .loader = &load_as<Shortlist>,
          .axes = {{.option = "top_frequent", .values = axis::vocab_shares(100, 2, 9)}},
          .tuning = TuningPlan{.turn = 10,
                               .needs_counts = true,
                               .models = OptionAxis{.option = "top_frequent",
                                                    .values = axis::vocab_shares_within(100, 2, 8)}},
          .wrapped = {.settings = {{"outside_sample", "0"}}},
          .tensors = detail::with_outside_mass({{"order", "I32", "[V]", "tokens, the most frequent first"},
                                                {"list", "I32", "[*]", "those that are scored"}},
                                               "1")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
