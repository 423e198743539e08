// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace topksoftmax::bench {

/// What may have been meant by a name that nobody knows, "; did you mean certified?": the name of the fewest
/// changes of a letter (put in, left out, replaced, swapped with the next), at most one for three letters of
/// the longer of both; of equals the first. Empty where none is so near.
std::string did_you_mean(std::string_view unknown, std::span<const std::string> names);

}  // namespace topksoftmax::bench
