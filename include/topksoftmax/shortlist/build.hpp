// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/rows/frequency_order.hpp"
#include "topksoftmax/rows/stored_array.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> Shortlist::build(SoftmaxLayer layer,
                                                                     const ShortlistOptions& options) {
  const std::size_t top = options.top_frequent.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  check_options("shortlist", options);
  const auto order =
      StoredArray<TokenId>::own(detail::frequency_order(layer, options.counts, Shortlist::kind));
  const std::span<const TokenId> first = order.span().first(std::min(top, layer.vocab()));
  return std::unique_ptr<Shortlist>(new Shortlist(layer, order, {first.begin(), first.end()}, top));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
