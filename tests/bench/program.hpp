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

/// Runs topksoftmax with these arguments, as a shell takes them. Where a file is given for its standard
/// output, ProgramRun::out stays empty. A launcher stands before the program: mpirun, say.
ProgramRun run_tool(const std::string& arguments, const std::string& standard_output = "",
                    const std::string& launcher = "");

/// The text of a file.
std::string read_text(const std::filesystem::path& path);

}  // namespace topksoftmax::testing
