// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/screeners/adaptive_softmax.hpp"

namespace topksoftmax::bench {

Backend adaptive() {
  using Options = AdaptiveSoftmaxOptions;
  return make_backend<Options>(
      "adaptive", "Adaptive softmax: the most frequent tokens, and tiers of rarer ones that may still win",
      {field("head", &Options::head, "most frequent tokens, which every query scores; V/10 if null"),
       field("tail_tiers", &Options::tail_tiers, "tiers of equal size that the others make"),
       field("caution", &Options::caution, "share of the contexts in which a tier stays below its gate"),
       field("context_sample", &Options::context_sample, "contexts that gates are learned from")},
      [](const Head& head, Options options, const TrainingProgress&) {
        options.counts = head.counts;
        return AdaptiveSoftmax::build(head.layer, head.train, options);
      },
      {{.parameter = "head", .values = [](const Head& head) {
          return geometric(std::max<std::size_t>(head.layer.vocab() / 100, 1),
                           std::max<std::size_t>(head.layer.vocab() / 2, 2), 9);
        }}});
}

}  // namespace topksoftmax::bench
