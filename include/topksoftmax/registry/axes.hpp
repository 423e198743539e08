// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/geometric.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/softmax_layer.hpp"

/// What descriptions make their axes of.
namespace TOPKSOFTMAX_NAMESPACE::axis {

/// The values of an option for a layer and k tokens asked for.
using Values = std::function<std::vector<std::size_t>(const SoftmaxLayer&, std::size_t k)>;

/// The same values for every layer.
inline Values listed(std::vector<std::size_t> values) {
  return [values = std::move(values)](const SoftmaxLayer&, std::size_t) { return values; };
}

/// At least so much of `total`, and at least `least`.
inline std::size_t share(std::size_t total, std::size_t divisor, std::size_t least) {
  return std::max(total / divisor, least);
}

/// The same, but no more than all.
inline std::size_t share_within(std::size_t total, std::size_t divisor, std::size_t least) {
  return std::min(share(total, divisor, least), total);
}

/// `count` numbers of tokens, from a share of V to a larger one.
inline Values vocab_shares(std::size_t first_divisor, std::size_t last_divisor, std::size_t count) {
  return [=](const SoftmaxLayer& layer, std::size_t) {
    return geometric(share(layer.vocab(), first_divisor, 1), share(layer.vocab(), last_divisor, 2), count);
  };
}
/// The same, none above V.
inline Values vocab_shares_within(std::size_t first_divisor, std::size_t last_divisor, std::size_t count) {
  return [=](const SoftmaxLayer& layer, std::size_t) {
    return geometric(share_within(layer.vocab(), first_divisor, 1),
                     share_within(layer.vocab(), last_divisor, 1), count);
  };
}

/// Lists of tokens from ten to a twentieth of V.
inline Values short_lists() {
  return
      [](const SoftmaxLayer& layer, std::size_t) { return geometric(10, share(layer.vocab(), 20, 20), 9); };
}

/// The effort that stands for a value, where it is the value.
inline std::size_t value_itself(std::size_t value, const Settings& /*values*/) {
  return value;
}

/// An option's value, of those that BackendDescription::values() has given, as the whole number that it is.
inline std::size_t whole(const Settings& values, const std::string& option) {
  return detail::number_of<std::size_t>(values.at(option)).value();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::axis
