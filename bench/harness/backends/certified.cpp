// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certified.hpp"

#include "harness/backends.hpp"

namespace topksoftmax::bench {

Backend certified() {
  using Options = CertifiedOptions;
  return make_backend<Options>(
      "certified", "The exact top-k, proven from int8 prefixes of rotated rows",
      {field("prefix", &Options::prefix, "coordinates that the first scan reads; 0 chooses on the contexts"),
       field("width", &Options::width, "coordinates in all"),
       field("context_sample", &Options::context_sample, "contexts that the coordinates are learned from"),
       field("expected_k", &Options::expected_k, "the k that the prefix is chosen for"),
       choice_field("coordinates", &Options::coordinates,
                    {{"balanced", BoundCoordinates::balanced},
                     {"contexts", BoundCoordinates::contexts},
                     {"rows", BoundCoordinates::rows}},
                    "what bounds are made in"),
       choice_field("boxes", &Options::boxes,
                    {{"automatic", BoundBoxes::automatic},
                     {"never", BoundBoxes::never},
                     {"always", BoundBoxes::always}},
                    "whether blocks of similar rows are bounded first")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return Certified::build(head.layer, head.train, options);
      });
}

}  // namespace topksoftmax::bench
