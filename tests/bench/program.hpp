// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace topksoftmax::testing {

/// What a program left behind.
struct ProgramRun {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// Runs topksoftmax-bench with these arguments, as a shell takes them.
ProgramRun run_bench(const std::string& arguments);

/// The text of a file.
std::string read_text(const std::filesystem::path& path);

}  // namespace topksoftmax::testing
