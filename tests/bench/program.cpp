// SPDX-License-Identifier: Apache-2.0
#include "bench/program.hpp"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/temporary_folder.hpp"

namespace topksoftmax::testing {

ProgramRun run_tool(const std::string& arguments, const std::string& standard_output,
                    const std::string& launcher) {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / "out";
  const std::filesystem::path err = folder.path() / "err";
  const std::string command = launcher + " " + TOPKSOFTMAX_PROGRAM + " " + arguments + " >" +
                              (standard_output.empty() ? out.string() : standard_output) + " 2>" +
                              err.string();
  const int status = std::system(command.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read_text(out),
          .err = read_text(err)};
}

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace topksoftmax::testing
