// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/command_line/help_formatter.hpp"
#include "harness/command_line/nearest_name.hpp"
#include "harness/command_line/shell_words.hpp"
#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/version.hpp"

namespace topksoftmax::bench {
namespace {

/// The library's, as people write it.
std::string version() {
  return std::to_string(TOPKSOFTMAX_VERSION_MAJOR) + "." + std::to_string(TOPKSOFTMAX_VERSION_MINOR) + "." +
         std::to_string(TOPKSOFTMAX_VERSION_PATCH);
}

/// The first line of a message, without the full stop that some end with.
std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

/// Throws UsageError, which says what was meant or lists the commands, for a first argument that is neither
/// an option nor a command.
void check_command(std::span<const Command> commands, const std::string& first) {
  std::vector<std::string> names;
  std::string list;
  for (const Command& command : commands) {
    if (first == command.name) return;
    names.push_back(command.name);
    list += (list.empty() ? "; there are " : ", ") + command.name;
  }
  const std::string meant = did_you_mean(first, names);
  throw UsageError("there is no command \"" + first + "\"" + (meant.empty() ? list : meant));
}

/// The same with a command, where options stand alone.
std::vector<std::string> with_command(std::span<const Command> commands, std::vector<std::string> arguments) {
  constexpr std::array<std::string_view, 3> kOfTheProgram = {"--help", "-h", "--version"};
  if (arguments.empty()) return {"--help"};
  const std::string first = arguments.front();
  if (first == "--list") {
    arguments.front() = "list";
  } else if (first.starts_with('-') &&
             std::find(kOfTheProgram.begin(), kOfTheProgram.end(), first) == kOfTheProgram.end()) {
    arguments.insert(arguments.begin(), "measure");
  }
  if (!arguments.front().starts_with('-')) check_command(commands, arguments.front());
  return arguments;
}

/// What --help ends with.
std::string examples_of(const std::string& program, const Command& command) {
  std::string text = "\nExamples:\n";
  std::istringstream lines(command.examples);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.starts_with(command.name) ? 0 : line.find(command.name + " ");
    text += "  " + line.insert(begin, program + " ") + "\n";
  }
  return text;
}

/// The long names of an app's options, with those of its groups.
void add_option_names(CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (CLI::App* const group : app.get_subcommands([](CLI::App* one) { return one->get_name().empty(); })) {
    add_option_names(*group, names);
  }
}

/// Throws UsageError for arguments that nobody expected, and says which option one of them may have been
/// meant to be.
[[noreturn]] void refuse_unexpected(CLI::App& app) {
  const std::vector<std::string> arguments = app.remaining(true);
  std::string text = arguments.size() == 1 ? "The following argument was not expected:"
                                           : "The following arguments were not expected:";
  for (const std::string& argument : arguments) text += " " + argument;
  std::vector<std::string> names;
  for (CLI::App* const command : app.get_subcommands()) add_option_names(*command, names);
  std::string meant;
  for (const std::string& argument : arguments) {
    if (meant.empty() && argument.starts_with('-')) {
      meant = did_you_mean(argument.substr(0, argument.find('=')), names);
    }
  }
  throw UsageError(text + meant);
}

Action print(std::string text) {
  return [text = std::move(text)](const Invocation& invocation) { invocation.out << text; };
}

}  // namespace

CommandLine parse_command_line(const std::string& program, std::span<const Command> commands, int argc,
                               const char* const* argv) {
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  const auto owner = std::make_shared<CLI::App>(
      "Fast top-k softmax over large vocabularies: measures, tunes, builds and asks its backends.");
  CLI::App& app = *owner;
  std::vector<std::string> words = {program};
  words.insert(words.end(), given.begin(), given.end());
  CommandLine line = {.command = shell_words(words), .action = {}, .options = owner};
  app.name(program);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", program + " " + version(), "Show the version");
  app.require_subcommand(1);
  app.footer(
      "\n" + program +
      " COMMAND --help shows a command's options and examples.\n"
      "Options without a command are those of measure.\n\n"
      "Exit codes: 0 where all was done, 1 where something failed, 2 where the\narguments make no sense.");
  for (const Command& command : commands) {
    CLI::App* const options = app.add_subcommand(command.name, command.summary);
    options->footer(examples_of(program, command));
    const Action action = command.declare(*options);
    options->callback([&line, action] { line.action = action; });
  }
  std::vector<std::string> arguments = with_command(commands, given);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    line.action = print(app.help());
  } catch (const CLI::CallForVersion& call) {
    line.action = print(std::string(call.what()) + "\n");
  } catch (const CLI::ExtrasError&) {
    refuse_unexpected(app);
  } catch (const CLI::RequiredError& error) {
    // What nobody knows may well be the one that is missing, misspelt.
    if (!app.remaining(true).empty()) refuse_unexpected(app);
    throw UsageError(first_line(error.what()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(first_line(error.what()));
  }
  return line;
}

}  // namespace topksoftmax::bench
