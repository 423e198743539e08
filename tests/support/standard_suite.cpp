// SPDX-License-Identifier: Apache-2.0
//
// Every backend of the standard registry, with settings for small layers.
#include "topksoftmax/conformance/suite.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax {

conformance::Suite conformance::suite() {
  return {.registry = Registry::standard(),
          .subjects = {
              {"exact"},
              {"fused"},
              {"l2s", {{"clusters", "8"}, {"budget", "60"}, {"rounds", "2"}}},
              {"l2s-kmeans", {{"clusters", "8"}, {"budget", "60"}}},
              {"fgd", {{"ef_search", "20"}}},
              {"svd"},
              {"row-clusters", {{"clusters", "16"}, {"visited", "4"}}},
              {"adaptive"},
              {"greedy-mips"},
              {"pca-mips", {{"depth", "4"}}},
              {"lsh-mips", {{"tables", "8"}, {"bits", "5"}, {"probes", "3"}}},
              {"shortlist"},
              {"quantized"},
              {"certified", {{"width", "16"}, {"boxes", "never"}}},
              {"certify:shortlist", {{"width", "16"}}},
              {"wta-lsh", {{"bands", "60"}}},
              {"wta-lsh-each", {{"bands", "60"}}},
              {"certified", {{"width", "16"}, {"boxes", "always"}}, "certified-boxes"},
              {"certified", {{"prefix", "4"}, {"width", "64"}}, "certified-long-tails"},
              {"certified", {{"prefix", "4"}, {"int4_width", "32"}}, "certified-int4"},
              {"certified",
               {{"prefix", "8"}, {"int4_width", "32"}, {"boxes", "always"}, {"box_width", "4"}},
               "certified-int4-boxes"},
              {"certified",
               {{"prefix", "4"}, {"int2_width", "32"}, {"failure_probability", "1e-9"}},
               "certified-dithered"},
          }};
}

}  // namespace topksoftmax
