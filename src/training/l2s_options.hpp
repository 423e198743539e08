// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "topksoftmax/error.hpp"
#include "topksoftmax/training/l2s_training.hpp"

namespace topksoftmax {

/// Throws Error for what nothing can be learned with.
inline void check(const L2SOptions& options) {
  const auto require = [](bool usable, const std::string& name, auto value, const std::string& limit) {
    if (!usable) throw Error("l2s: " + name + " is " + std::to_string(value) + "; it must be " + limit);
  };
  constexpr double most = 1e6;  // whose products with the others stay within the floats
  require(options.clusters >= 1, "clusters", options.clusters, "at least 1");
  require(options.budget >= 1.0, "budget", options.budget, "at least 1");
  require(options.lambda > 0.0 && options.lambda < 1.0, "lambda", options.lambda, "above 0 and below 1");
  require(options.gamma >= 0.0 && options.gamma <= most, "gamma", options.gamma, "from 0 to 1e6");
  require(options.temperature >= 1.0 / most && options.temperature <= most, "temperature",
          options.temperature, "from 1e-6 to 1e6");
  require(options.epochs >= 1, "epochs", options.epochs, "at least 1");
  require(options.batch_size >= 1, "batch_size", options.batch_size, "at least 1");
  require(options.learning_rate > 0.0 && options.learning_rate <= most, "learning_rate",
          options.learning_rate, "above 0 and at most 1e6");
  require(options.sharpness > 0.0 && options.sharpness < 1.0, "sharpness", options.sharpness,
          "above 0 and below 1");
  require(options.label_count >= 1, "label_count", options.label_count, "at least 1");
  require(options.label_depth >= options.label_count, "label_depth", options.label_depth,
          "at least label_count, " + std::to_string(options.label_count));
  require(options.near_miss_value >= 0.0 && options.near_miss_value <= 1.0, "near_miss_value",
          options.near_miss_value, "from 0 to 1");
  require(options.near_miss_temperature > 0.0 && options.near_miss_temperature <= most,
          "near_miss_temperature", options.near_miss_temperature, "above 0 and at most 1e6");
}

}  // namespace topksoftmax
