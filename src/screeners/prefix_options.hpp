// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "topksoftmax/error.hpp"
#include "topksoftmax/screeners/certified.hpp"

namespace topksoftmax {

inline constexpr std::size_t kMostBoundWidth = 4096;

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("prefix", options.prefix);
  visit("width", options.width);
  visit("context_sample", options.context_sample);
  visit("expected_k", options.expected_k);
  unsigned boxes = options.boxes == BoundBoxes::always ? 1 : 0;
  visit("boxes", boxes);
  if constexpr (!std::is_const_v<Options>)
    options.boxes = boxes != 0 ? BoundBoxes::always : BoundBoxes::never;
}

/// Throws Error for what nothing can be built with.
inline void check(const CertifiedOptions& options) {
  if (options.width != 0 && (options.width < 4 || options.width > kMostBoundWidth)) {
    throw Error("certified: width is " + std::to_string(options.width) + "; it must be 0 or from 4 to " +
                std::to_string(kMostBoundWidth));
  }
  const std::size_t longest = options.width == 0 ? kMostBoundWidth : options.width;
  if (options.prefix % 4 != 0 || options.prefix > longest) {
    throw Error("certified: prefix is " + std::to_string(options.prefix) +
                "; it must be a multiple of 4 and at most " + std::to_string(longest));
  }
  if (options.context_sample == 0) throw Error("certified: context_sample is 0; it must be at least 1");
  if (options.expected_k == 0) throw Error("certified: expected_k is 0; it must be at least 1");
}

/// The same once nothing is left open. Narrow layers have fewer coordinates than may be asked for.
inline void check_chosen(const CertifiedOptions& options) {
  if (options.width >= 1 && options.width <= kMostBoundWidth && options.prefix % 4 == 0 &&
      options.prefix <= options.width) {
    return;
  }
  throw Error("certified: prefix is " + std::to_string(options.prefix) + " and width " +
              std::to_string(options.width));
}

}  // namespace topksoftmax
