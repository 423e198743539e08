// SPDX-License-Identifier: Apache-2.0
//
// A program that holds the library in two forms, compiled and as headers alone, which must answer alike.
#include <exception>
#include <iostream>

#include "answers.hpp"

namespace {

/// Headers alone sum in the order of the vectors that their file is compiled for.
constexpr Tolerance kTolerance = {.exact_log_z = 1e-5, .other = 1e-4};

}  // namespace

int main() {
  try {
    const World world;
    const Answers compiled = compiled_form::answers(world);
    const Answers alone = header_only_form::answers(world);
    expect_exact(compiled, world);
    expect_exact(alone, world);
    expect_equal(compiled, alone, kTolerance);
    expect_equal(compiled_form::decoded(world), header_only_form::decoded(world), kTolerance);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
