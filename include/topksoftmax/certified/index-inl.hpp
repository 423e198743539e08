// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "topksoftmax/certified/boxes.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/certified/tails.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE CertifiedIndex::CertifiedIndex(const IndexReader& in) {
  visit_recorded_options(options, in.options());
  if (in.has_option(kInt4Width)) in.option(kInt4Width, options.int4_width);
  if (in.has_option(kInt2Width)) in.option(kInt2Width, options.int2_width);
  if (in.has_option(kFailureProbability)) in.option(kFailureProbability, options.failure_probability);
  in.check([&] { check_chosen_options(options); });
  const StoredArray<double> norms = in.doubles("norms", {4});
  transform = ContextTransform(in, std::min(options.width, in.dim()), norms.data());
  longest_row = norms[2];
  largest_bias = norms[3];
  const StoredArray<double> weights = in.doubles("weights", {2, kBoundTerms});
  std::copy_n(weights.data(), kBoundTerms, prefix_weights.begin());
  std::copy_n(weights.data() + kBoundTerms, kBoundTerms, tail_weights.begin());
  outside_position = in.doubles(kOutsidePosition, {1})[0];
  if (!(outside_position >= 0.0 && outside_position <= 1.0)) {
    throw in.damaged(kOutsidePosition, "is not between 0 and 1");
  }
  const bool boxed = options.boxes == BoundBoxes::always;
  if (boxed) order = RowOrder(in.distinct_tokens(kOrder, {in.vocab()}));
  if (options.code_width() > 0) {
    const StoredArray<double> of_codes = in.doubles(kCodeWeights, {kCodeTerms});
    std::copy_n(of_codes.data(), kCodeTerms, code_weights.begin());
    if (options.failure_probability > 0.0) {
      dither = Dither(in, options.code_width(), options.failure_probability);
    }
  }
  prefixes = PrefixStore(in, kPrefixes, in.vocab(), options.prefix, options.int4_width, options.int2_width);
  prefixes.check_biases(in, kPrefixes, order);
  if (boxed) box_store = BoxStore(in, prefixes.blocks().blocks(), options.prefix);
  tails = TailStore(in, in.vocab(), options.width - options.prefix);
  outside_mass = OutsideMass::load(in, kOutsideModels, outside_features(transform.width()));
}

TOPKSOFTMAX_INLINE void CertifiedIndex::save(IndexWriter& out) const {
  visit_recorded_options(options, out.options());
  if (options.code_width() > 0) {
    out.option(kInt4Width, options.int4_width);
    if (options.int2_width > 0) out.option(kInt2Width, options.int2_width);
    out.array(kCodeWeights, {kCodeTerms},
              StoredArray<double>::own(std::vector<double>(code_weights.begin(), code_weights.end())));
  }
  if (!is_proven()) {
    out.option(kFailureProbability, options.failure_probability);
    dither.save(out);
  }
  transform.save(out);
  out.array("norms", {4},
            StoredArray<double>::own(
                std::vector{transform.unorthogonality(), transform.norm(), longest_row, largest_bias}));
  std::vector<double> weights(prefix_weights.begin(), prefix_weights.end());
  weights.insert(weights.end(), tail_weights.begin(), tail_weights.end());
  out.array("weights", {2, kBoundTerms}, StoredArray<double>::own(std::move(weights)));
  out.array(kOutsidePosition, {1}, StoredArray<double>::own(std::vector{outside_position}));
  prefixes.save(out, kPrefixes);
  if (has_boxes()) {
    out.array(kOrder, {rows()}, order.tokens());
    box_store.save(out);
  }
  tails.save(out);
  if (outside_mass) outside_mass->save(out);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
