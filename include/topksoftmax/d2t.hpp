// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// token_ids_from_d2t() where it is known what the values were read from: error(what) is thrown for a sum
/// that is not an id.
template <class MakeError>
std::vector<TokenId> token_ids_from_d2t(std::span<const std::int64_t> d2t, const MakeError& error) {
  std::vector<TokenId> ids(d2t.size());
  for (std::size_t row = 0; row < d2t.size(); ++row) {
    constexpr std::int64_t most = std::numeric_limits<TokenId>::max() - 1;
    const auto at = static_cast<std::int64_t>(row);
    if (d2t[row] < -at || d2t[row] > most - at) {
      throw error("has " + std::to_string(d2t[row]) + " for row " + std::to_string(row) +
                  "; with the row's number it must be an id, at least 0 and at most " + std::to_string(most));
    }
    ids[row] = static_cast<TokenId>(at + d2t[row]);
  }
  return ids;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The tokens of the rows of an EAGLE-3 head, from its tensor d2t: row r is token r + d2t[r]. Throws Error
/// for a sum that is not an id.
inline std::vector<TokenId> token_ids_from_d2t(std::span<const std::int64_t> d2t) {
  return detail::token_ids_from_d2t(d2t,
                                    [](const std::string& what) { return Error("mapped: d2t " + what); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
