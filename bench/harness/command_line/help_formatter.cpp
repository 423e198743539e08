// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/help_formatter.hpp"

#include <cstddef>
#include <sstream>

#include "harness/text/wrapped.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kColumns = 80;
/// What CLI11 moves options of a group in by.
constexpr std::size_t kGroupIndent = 4;

}  // namespace

std::string HelpFormatter::make_description(const CLI::App* app) const {
  std::istringstream paragraphs(CLI::Formatter::make_description(app));
  std::string text;
  for (std::string line; std::getline(paragraphs, line);) {
    text += wrapped(line, kColumns - kGroupIndent) + '\n';
  }
  return text;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrapped(option->get_description(), kColumns - kGroupIndent - get_column_width());
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  constexpr std::size_t kNames = 13;
  std::istringstream lines(wrapped(command->get_description(), kColumns - kNames));
  std::string name = "  " + command->get_name();
  std::string text;
  for (std::string line; std::getline(lines, line); name.clear()) {
    name.resize(kNames, ' ');
    text += name + line + '\n';
  }
  return text;
}

}  // namespace topksoftmax::bench
