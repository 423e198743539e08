// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/shortlist.hpp"

#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"

namespace topksoftmax::bench {

Backend shortlist() {
  using Options = ShortlistOptions;
  return make_backend<Options>("shortlist", "The most frequent tokens, and no others",
                               {field("top_frequent", &Options::top_frequent, "T, the tokens; V/10 if null")},
                               [](const Head& head, Options options, const TrainingProgress&) {
                                 options.counts = head.counts;
                                 return Shortlist::build(head.layer, options);
                               },
                               {{.parameter = "top_frequent", .values = [](const Head& head) {
                                   return geometric(std::max<std::size_t>(head.layer.vocab() / 100, 1),
                                                    std::max<std::size_t>(head.layer.vocab() / 2, 2), 9);
                                 }}});
}

}  // namespace topksoftmax::bench
