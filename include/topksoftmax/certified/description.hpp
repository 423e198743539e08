// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The tensors of the bounds, which Certified and Certify both have.
inline std::vector<TensorDescription> bound_tensors() {
  return {
      {"Q", "F16", "[d, *]", "Qᵀ, as CertifiedScreener names it, with zeros …"},
      {"R", "F32", "[M, *]", "… behind the M columns of it, and of Rᵀ"},
      {"RQ", "U8", "[⌈d/16⌉, *]",
       "in place of both where M = d: kernels::PrefixBlocks of d coordinates; absent, as both, where "
       "options.identity is 1"},
      {"norms", "F64", "[4]",
       "η, ‖R‖ (‖RQ‖ where that is one matrix), the largest ‖w‖, the largest bias by magnitude"},
      {"bound_weights", "F64", "[3, 5]", "κ of the boxes, of the prefixes, of prefixes and tails"},
      {"code_weights", "F64", "[5]",
       "κ of coordinates in codes, if there are any; 3 in files of earlier versions, where these are not "
       "dithered"},
      {"dither", "F32", "[*]", "t of these, if options.failure_probability is not 0"},
      {"outside_position", "F64", "[1]", "α of log Z's estimate"},
      {"order", "I32", "[V]", "the token of each row of the following; absent: 0, 1, 2, …"},
      {"prefixes", "U8", "[⌈V/16⌉, *]",
       "kernels::PrefixBlocks, options.prefix coordinates as int8, options.int4_width as int4, "
       "options.int2_width as codes of two bits"},
      {"boxes.centres", "U8", "[⌈V/256⌉, *]",
       "if options.boxes is 1, with boxes.spreads: kernels::PrefixBoxes, around the leading "
       "options.box_width coordinates (absent: options.prefix) of each block of 16 rows"},
      {"boxes.spreads", "U8", "[⌈V/256⌉, *]", "with boxes.centres"},
      {"tails", "U8", "[V, *]", "kernels::PrefixTails of the others, if there are any"},
      {"rows.covariance", "F32", "[d, *]",
       "the covariance of the rows in a unit, with zeros behind the d columns; absent, as the next five, "
       "where "
       "it is not far smaller than W"},
      {"rows.mean", "F64", "[d]", "their mean"},
      {"rows.sizes", "F64", "[d]", "√E[w_j²] at the least"},
      {"rows.spreads", "F64", "[d]", "√Var(w_j) at the least"},
      {"rows.bias_covariance", "F64", "[d]", "Cov(w, b)"},
      {"rows.numbers", "F64", "[4]", "the unit of rows.covariance; E[b], E[b²] and Var(b)"},
      {"outside.regions", "F32", "[*, *]",
       "centres of up to 16 regions that leading coordinates of contexts tell apart, if there are several"},
      {"outside.weights", "F32", "[*, *]",
       "for a k of 1, of about expected_k and for more, of each region, log Σ exp(logit) over the rows "
       "outside ≈ w·features + offset (certified/outside_features.hpp); absent, as the next two, where it "
       "was not "
       "learned"},
      {"outside.offsets", "F32", "[*]", "the offsets"},
      {"outside.error", "F64", "[3]",
       "|error of log Z| on held-out contexts: median, 99th percentile; and the largest log(mass outside / "
       "mass of the candidates)"}};
}

/// The k that bounds are chosen for.
inline Settings expected_k(std::size_t k) {
  if (k == CertifiedOptions{}.expected_k) return {};
  return {{"expected_k", std::to_string(k)}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_certified() {
  const auto build = [](const BuildMaterial& from, const CertifiedOptions& options) {
    return Certified::build(from.layer, from.contexts, options, from.executor);
  };
  return {.name = "certified",
          .kind = std::string(Certified::kind),
          .summary = "The exact top-k, proven from int8 prefixes of rotated rows",
          .advice = {.place = 10,
                     .names = "`Certified`",
                     .answers = "exact, proven (`top.certified`); log Z as a proven interval",
                     .learns_from = "contexts (better), or W alone",
                     .take_when = "you want speed without giving up exactness"},
          .traits = {.exact = true},
          .builder = builder<CertifiedOptions>(
              {"Certified::build", "layer, contexts", "topksoftmax/certified/build.hpp"}, build),
          .loader = &load_as<Certified>,
          .tuning = TuningPlan{.turn = 1, .always = true},
          .for_k = detail::expected_k,
          .tensors = detail::bound_tensors()};
}

/// Certify, around any other.
inline BackendDescription describe_certify() {
  const auto wrap = [](const BuildMaterial& from, const CertifiedOptions& options) {
    return Certify::wrap(from.wrapped, from.contexts, options, from.executor);
  };
  std::vector<TensorDescription> tensors = detail::bound_tensors();
  tensors.push_back({"wrapped.*", "", "", "kind, options and tensors of the wrapped backend"});
  return {.name = "certify",
          .kind = std::string(Certify::kind),
          .summary = "its answers checked and repaired by certified's bounds",
          .advice = {.place = 20,
                     .names = "`Certify`",
                     .answers = "those of any backend, made exact and proven; `work.repaired` says where it "
                                "was wrong",
                     .learns_from = "what that backend and `Certified` do",
                     .take_when = "you have a fast backend and want a proof"},
          .traits = {.exact = true},
          .builder = builder<CertifiedOptions>(
              {"Certify::wrap", "{wrapped}, contexts", "topksoftmax/certified/build.hpp"}, wrap),
          .loader = &load_as<Certify>,
          .for_k = detail::expected_k,
          .tensors = std::move(tensors),
          .wraps = true};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
