// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// How concentrated a model's contexts are: the share of the test contexts' energy ‖h‖² that lies in the
/// leading directions of the training contexts, and the same of what is left without the training contexts'
/// mean. Screens that look at a few directions first, and bounds on the rest, live off it.
struct Concentration {
  static constexpr std::array<std::size_t, 4> directions = {16, 32, 64, 128};

  std::size_t found = 0;  ///< directions that there are: d, or as many as the training contexts looked at

  /// By each number of directions; of all that there are where they are fewer.
  std::array<double, 4> plain = {};
  std::array<double, 4> centred = {};
};

/// Measures it on 4,096 contexts of each set at most, evenly spaced; the directions are found by subspace
/// iteration (Halko, Martinsson and Tropp 2011, section 4.5), from the same random start every time. Cost:
/// O(4,096·d·160) products a step. NaN where one of the sets is empty.
Concentration concentration_of(const RowMajorMatrix& train, const RowMajorMatrix& test);

/// In a sentence, without its full stop, of the numbers of directions that there are; empty where it is NaN.
std::string describe(const Concentration& concentration);

/// {"directions": […], "energy": […], "energy_centred": […]}.
nlohmann::ordered_json to_json(const Concentration& concentration);

}  // namespace topksoftmax::bench
