// SPDX-License-Identifier: Apache-2.0
//
// What all commands of the tool have in common: the program itself is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/program.hpp"
#include "harness/command_line/command.hpp"
#include "harness/command_line/command_line.hpp"
#include "harness/commands/commands.hpp"
#include "harness/text/characters.hpp"
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

TEST(Tool, HelpFitsATerminal) {
  std::vector<std::string> arguments = {"--help"};
  for (const bench::Command& command : bench::commands()) arguments.push_back(command.name + " --help");
  for (const std::string& argument : arguments) {
    const std::string help = run_tool(argument).out;
    std::istringstream lines(help.substr(0, help.find("\nExamples:\n")));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(bench::characters(line), 80U) << line;
  }
}

/// The arguments of an example: what stands between the program's name, which is left out, and a pipe.
std::vector<std::string> arguments_of(const bench::Command& command, const std::string& example) {
  std::istringstream words(example.substr(example.find(command.name)));
  std::vector<std::string> arguments;
  for (std::string word; words >> word && word != "|";) arguments.push_back(word);
  return arguments;
}

TEST(Tool, TakesTheArgumentsOfItsExamples) {
  for (const bench::Command& command : bench::commands()) {
    std::istringstream examples(command.examples);
    for (std::string example; std::getline(examples, example);) {
      const std::vector<std::string> arguments = arguments_of(command, example);
      std::vector<const char*> words = {"topksoftmax"};
      for (const std::string& argument : arguments) words.push_back(argument.c_str());
      EXPECT_NO_THROW(bench::parse_command_line("topksoftmax", bench::commands(),
                                                static_cast<int>(words.size()), words.data()))
          << example;
    }
  }
}

TEST(Tool, NamesAnOptionThatNobodyKnowsBeforeOneThatIsMissing) {
  for (const std::string arguments : {"-x", "measure -x", "plot -x"}) {
    const ProgramRun run = run_tool(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("not expected: -x")) << arguments;
  }
}

TEST(Tool, SaysWhichOptionMayHaveBeenMeant) {
  const auto expect_error = [](const std::string& arguments, const std::string& part) {
    const ProgramRun run = run_tool(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("not expected: " + part + " (--help"));
  };
  expect_error("measure --head x --backend fused", "--backend fused; did you mean --backends?");
  expect_error("--backend=fused --head x", "--backend=fused; did you mean --backends?");
  expect_error("measure --head x --decod", "--decod; did you mean --decode?");
  expect_error("build --heda x", "--heda x; did you mean --head?");
  expect_error("--sample --head x", "--sample; did you mean --sampling?");
  expect_error("measure --head x one --colour two", "one --colour two");
  expect_error("measure --head x --colour --samplin", "--colour --samplin; did you mean --sampling?");
}

TEST(Tool, SaysWhichCommandMayHaveBeenMeant) {
  const ProgramRun run = run_tool("mesure --head x");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("there is no command \"mesure\"; did you mean measure? (--help"));
}

TEST(Tool, SaysThatMemoryRanOut) {
  const testing::TemporaryFolder folder;
  // Sanitizers would rather end the program.
  const ProgramRun run =
      run_tool("make-head --vocab 100 --dim 4000000 --out " + (folder.path() / "big").string(), "",
               "env ASAN_OPTIONS=allocator_may_return_null=1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("topksoftmax: out of memory\n"));
}

TEST(Tool, KnowsNoOtherCommands) {
  const ProgramRun run = run_tool("train --head x");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("there is no command \"train\"; there are measure, tune, "));
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

TEST(Tool, ListsTheRangesOfParameters) {
  std::map<std::string, std::string> ranges;
  for (const nlohmann::json& backend : nlohmann::json::parse(run_tool("list --json -").out)) {
    for (const nlohmann::json& option : backend.at("options")) {
      ranges[backend.at("name").get<std::string>() + "." + option.at("name").get<std::string>()] =
          option.at("range");
    }
  }
  const std::string list = run_tool("list").out;
  for (const auto& [option, range] : std::map<std::string, std::string>{{"fgd.M", "from 2 to 1024"},
                                                                        {"l2s.clusters", "at least 1"},
                                                                        {"l2s.lambda", "above 0 and below 1"},
                                                                        {"l2s.seed", ""}}) {
    EXPECT_EQ(ranges.at(option), range);
    const std::size_t begin = list.find("--set " + option + "=");
    const std::string line = list.substr(begin, list.find('\n', begin) - begin);
    EXPECT_TRUE(line.ends_with(range.empty() ? "of the random numbers" : "; " + range)) << line;
  }
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
