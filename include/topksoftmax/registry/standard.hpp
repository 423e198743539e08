// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "topksoftmax/adaptive/description.hpp"
#include "topksoftmax/baselines/description.hpp"
#include "topksoftmax/certified/description.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/description.hpp"
#include "topksoftmax/l2s/description.hpp"
#include "topksoftmax/quantized/description.hpp"
#include "topksoftmax/registry/exhaustive_descriptions.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/row_clusters/description.hpp"
#include "topksoftmax/shortlist/description.hpp"
#include "topksoftmax/svd/description.hpp"
#include "topksoftmax/wta/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Includes everything that builds. Programs that only load take registry/standard_loader.hpp.
inline Registry Registry::standard() {
  Registry all;
  all.add(describe_exact())
      .add(describe_fused())
      .add(describe_l2s())
      .add(describe_l2s_kmeans())
      .add(describe_fgd())
      .add(describe_svd())
      .add(describe_row_clusters())
      .add(describe_adaptive())
      .add(describe_greedy_mips())
      .add(describe_pca_mips())
      .add(describe_lsh_mips())
      .add(describe_wta_lsh())
      .add(describe_wta_lsh_each())
      .add(describe_shortlist())
      .add(describe_quantized())
      .add(describe_certified())
      .add(describe_certify());
  // The one of those that Certify makes which competes under a name of its own, with the options that matter.
  BackendDescription certify_l2s = narrowed(all.find("certify:l2s-kmeans"), "certify:l2s",
                                            {"clusters", "budget", "prefix", "width", "expected_k"});
  certify_l2s.summary = "L2S with short lists, its answers checked and repaired by certified's bounds";
  certify_l2s.builder.options.front().help += " of L2S";
  certify_l2s.tuning.reset();  // l2s-kmeans says how it is tried
  return all.add(std::move(certify_l2s));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
