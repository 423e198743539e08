// SPDX-License-Identifier: Apache-2.0
//
// matrix write FILE: writes what every backend answers. matrix compare FILE: fails where that differs from
// what another program has written.
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "answers.hpp"
#include "own_algebra.hpp"

namespace {

/// log Z over all tokens is summed by the library that both programs are linked with. Where a backend sums
/// over less, or adds logits of low rank, it was built by what the program's own compiler flags made of
/// Eigen.
constexpr Tolerance kTolerance = {.exact_log_z = 0.0, .other = 1e-4};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: matrix write|compare FILE");
    do_own_algebra(60);
    const World world;
    Answers answers = compiled_form::answers(world);
    expect_exact(answers, world);
    for (Answer& answer : compiled_form::decoded(world)) answers.push_back(std::move(answer));
    if (std::string(argv[1]) == "write") {
      std::ofstream out(argv[2]);
      write(out, answers);
      return out.flush() ? 0 : 1;
    }
    std::ifstream in(argv[2]);
    expect_equal(read(in), answers, kTolerance);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
