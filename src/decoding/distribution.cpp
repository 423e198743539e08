// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "decoding/weights.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {

Distribution::Distribution(std::vector<TokenId> ids, std::vector<double> weights)
    : ids_(std::move(ids)), probabilities_(std::move(weights)) {
  const double sum = sum_of(probabilities_);
  bool usable = std::isfinite(sum) && sum > 0.0;
  for (const double weight : probabilities_) usable &= weight >= 0.0;
  if (!usable) {
    for (std::size_t i = 0; i < probabilities_.size(); ++i) {
      if (std::isfinite(probabilities_[i]) && probabilities_[i] >= 0.0) continue;
      throw Error("distribution: the weight of token " + std::to_string(id(i)) + " is " +
                  std::to_string(probabilities_[i]) + "; it must be finite and at least 0");
    }
    throw Error("distribution: the weights of " + std::to_string(probabilities_.size()) +
                " tokens sum up to " + std::to_string(sum) + "; the sum must be finite and above 0");
  }
  const double scale = 1.0 / sum;
  for (double& probability : probabilities_) {
    probability = std::isfinite(scale) ? probability * scale : probability / sum;
  }
}

Distribution Distribution::of_all(std::vector<double> weights) {
  return Distribution({}, std::move(weights));
}

Distribution Distribution::of_some(std::vector<TokenId> ids, std::vector<double> weights) {
  if (ids.size() != weights.size()) {
    throw Error("distribution: there are " + std::to_string(ids.size()) + " tokens and " +
                std::to_string(weights.size()) + " weights; they must be as many");
  }
  TokenId previous = -1;
  for (const TokenId id : ids) {
    if (id <= previous) {
      throw Error("distribution: token " + std::to_string(id) + " follows " + std::to_string(previous) +
                  "; ids must be strictly ascending, from 0 on");
    }
    previous = id;
  }
  return Distribution(std::move(ids), std::move(weights));
}

double Distribution::operator[](TokenId id) const {
  std::size_t at = static_cast<std::size_t>(id);
  if (!ids_.empty()) {
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (found == ids_.end() || *found != id) return 0.0;
    at = static_cast<std::size_t>(found - ids_.begin());
  }
  return at < probabilities_.size() ? probabilities_[at] : 0.0;
}

TokenId Distribution::draw(double u) const {
  return id(find_in_cumulative(probabilities_, u));
}

}  // namespace topksoftmax
