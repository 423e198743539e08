// SPDX-License-Identifier: Apache-2.0
//
// What all commands of the tool have in common: the program itself is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/program.hpp"
#include "harness/command.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::HasSubstr;
using testing::ProgramRun;
using testing::run_tool;

TEST(Tool, ShowsExamplesOfEveryCommand) {
  const std::string help = run_tool("--help").out;
  EXPECT_THAT(help, HasSubstr("Exit codes: 0 "));
  EXPECT_EQ(run_tool("").out, help);
  for (const bench::Command& command : bench::commands()) {
    EXPECT_THAT(help, HasSubstr("\n  " + command.name + " ")) << command.name;
    const ProgramRun run = run_tool(command.name + " --help");
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_THAT(run.out, HasSubstr("Examples:\n  "));
    EXPECT_THAT(run.out, HasSubstr("topksoftmax " + command.name));
  }
}

TEST(Tool, KnowsNoOtherCommands) {
  const ProgramRun run = run_tool("measur --head x");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("there is no command \"measur\"; there are measure, tune, "));
  EXPECT_EQ(run_tool("measure").exit_code, 2);
  EXPECT_THAT(run_tool("measure").err, HasSubstr("--head is required"));
}

TEST(Tool, ListsBackendsForPeopleAndPrograms) {
  const nlohmann::json list = nlohmann::json::parse(run_tool("list --json -").out);
  std::string names;
  for (const nlohmann::json& backend : list) {
    names += backend.at("name").get<std::string>() + "\n";
    EXPECT_FALSE(backend.at("summary").get<std::string>().empty());
  }
  EXPECT_EQ(run_tool("list --names").out, names);
  EXPECT_EQ(run_tool("list").out, run_tool("--list").out);
  EXPECT_THAT(names, HasSubstr("certified\n"));
}

/// What bash would offer for the last of these words.
std::string completed(const std::string& words) {
  const testing::TemporaryFolder folder;
  const std::string script = folder
                                 .write("complete.sh", "source '" TOPKSOFTMAX_COMPLETIONS
                                                       "'\n"
                                                       "COMP_WORDS=('" TOPKSOFTMAX_PROGRAM "' " +
                                                           words +
                                                           ")\n"
                                                           "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                                           "_topksoftmax\n"
                                                           "printf '%s\\n' \"${COMPREPLY[@]}\"\n")
                                 .string();
  const std::string out = (folder.path() / "out").string();
  EXPECT_EQ(std::system(("bash " + script + " >" + out).c_str()), 0);
  return testing::read_text(out);
}

TEST(Tool, CompletesInBash) {
  if (std::system("bash -c true") != 0) GTEST_SKIP() << "there is no bash";
  EXPECT_EQ(completed("m"), "measure\nmake-head\n");
  EXPECT_EQ(completed("measure --mi"), "--min-p\n");
  EXPECT_THAT(completed("ask --"), HasSubstr("--contexts\n"));
  EXPECT_EQ(completed("build --backend certif"), "certified\ncertify:l2s\n");
  EXPECT_EQ(completed("measure --backends fused,quant"), "fused,quantized\n");
  EXPECT_EQ(completed("build --set adap"), "adaptive.\n");
}

}  // namespace
}  // namespace topksoftmax
