// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/certified/boxes.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/outside_estimate.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/certified/row_covariance.hpp"
#include "topksoftmax/certified/tails.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE CertifiedIndex::CertifiedIndex(const IndexReader& in) {
  visit_recorded_options(options, in.options());
  if (in.has_option(kInt4Width)) in.option(kInt4Width, options.int4_width);
  if (in.has_option(kInt2Width)) in.option(kInt2Width, options.int2_width);
  if (in.has_option(kFailureProbability)) in.option(kFailureProbability, options.failure_probability);
  const bool boxed = options.boxes == BoundBoxes::always;
  if (boxed) options.box_width = options.prefix;
  if (boxed && in.has_tensor(kBoundWeights)) in.option(kBoxWidth, options.box_width);
  in.check([&] { check_chosen_options(options); });
  const StoredArray<double> norms = in.doubles("norms", {4});
  transform = ContextTransform(in, std::min(options.width, in.dim()), norms.data());
  longest_row = norms[2];
  largest_bias = norms[3];
  read_weights(in);
  if (boxed) order = RowOrder(in.distinct_tokens(kOrder, {in.vocab()}));
  if (options.code_width() > 0) {
    if (options.prefix + options.code_width() > transform.width()) {
      throw in.damaged(kPrefixes, "has codes of more coordinates than contexts have");
    }
    const StoredArray<double> of_codes = in.doubles(kCodeWeights, {IndexReader::any});
    const bool random = options.failure_probability > 0.0;
    // Earlier versions kept no weights for what lies beyond undithered codes: nothing does.
    const bool is_older = !random && of_codes.size() == kBeyondInt4;
    if (!is_older && of_codes.size() != kCodeTerms) {
      throw in.damaged(kCodeWeights,
                       "has " + std::to_string(of_codes.size()) + " weights in place of " +
                           std::to_string(kCodeTerms) +
                           (random ? "; if an earlier version wrote it, build the index again" : ""));
    }
    std::copy(of_codes.begin(), of_codes.end(), code_weights.begin());
    if (random) dither = Dither(in, options.code_width(), options.failure_probability);
  }
  prefixes = PrefixStore(in, kPrefixes, in.vocab(), options.prefix, options.int4_width, options.int2_width);
  prefixes.check_biases(in, kPrefixes, order);
  if (boxed) box_store = BoxStore(in, prefixes.blocks().blocks(), options.box_width);
  tails = TailStore(in, in.vocab(), options.width - options.prefix);
  covariance = RowCovariance::load(in);
  outside = OutsideEstimate(in, stored_width());
}

TOPKSOFTMAX_INLINE void CertifiedIndex::read_weights(const IndexReader& in) {
  BoundTerms* const all[] = {&box_weights, &prefix_weights, &tail_weights};
  if (in.has_tensor(kBoundWeights) || !in.has_tensor(kOlderWeights)) {
    const StoredArray<double> weights = in.doubles(kBoundWeights, {std::size(all), kBoundTerms});
    for (std::size_t i = 0; i < std::size(all); ++i) {
      std::copy_n(weights.data() + i * kBoundTerms, kBoundTerms, all[i]->begin());
    }
    return;
  }
  // Of prefixes and tails alone: boxes had the prefixes', and tails no coordinates behind them, but codes.
  const StoredArray<double> weights = in.doubles(kOlderWeights, {2, kOfCodes});
  std::copy_n(weights.data(), kOfCodes, prefix_weights.begin());
  std::copy_n(weights.data() + kOfCodes, kOfCodes, tail_weights.begin());
  std::swap(tail_weights[kLonger], tail_weights[kOfCodes]);
  box_weights = prefix_weights;
}

TOPKSOFTMAX_INLINE void CertifiedIndex::save(IndexWriter& out) const {
  visit_recorded_options(options, out.options());
  if (options.code_width() > 0) {
    out.option(kInt4Width, options.int4_width);
    if (options.int2_width > 0) out.option(kInt2Width, options.int2_width);
    out.array(kCodeWeights, {kCodeTerms},
              StoredArray<double>::own(std::vector<double>(code_weights.begin(), code_weights.end())));
  }
  if (has_boxes()) out.option(kBoxWidth, options.box_width);
  if (!is_proven()) {
    out.option(kFailureProbability, options.failure_probability);
    dither.save(out);
  }
  transform.save(out);
  out.array("norms", {4},
            StoredArray<double>::own(
                std::vector{transform.unorthogonality(), transform.norm(), longest_row, largest_bias}));
  std::vector<double> weights;
  for (const BoundTerms& some : {box_weights, prefix_weights, tail_weights}) {
    weights.insert(weights.end(), some.begin(), some.end());
  }
  const std::size_t kinds = weights.size() / kBoundTerms;
  out.array(kBoundWeights, {kinds, kBoundTerms}, StoredArray<double>::own(std::move(weights)));
  prefixes.save(out, kPrefixes);
  if (has_boxes()) {
    out.array(kOrder, {rows()}, order.tokens());
    box_store.save(out);
  }
  tails.save(out);
  if (covariance) covariance->save(out);
  outside.save(out);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
