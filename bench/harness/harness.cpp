// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/harness/harness.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>

#include "harness/command_line/command_line.hpp"
#include "harness/command_line/usage_error.hpp"
#include "harness/commands/commands.hpp"
#include "harness/text/progress.hpp"
#include "peers/peers.hpp"

namespace {

namespace bench = topksoftmax::bench;

/// Whether standard output is a pipe that nobody reads any more.
bool reader_is_gone() {
  pollfd standard = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&standard, 1, 0) == 1 && (standard.revents & (POLLERR | POLLHUP)) != 0;
}

/// The exit code, by whether all that was printed has arrived.
int finish_output(const std::string& program) {
  if (std::cout.flush()) return 0;
  if (!reader_is_gone()) std::cerr << program << ": standard output cannot be written\n";
  return 1;
}

}  // namespace

int topksoftmax::run_harness(int argc, char** argv, Registry registry) {
  // A reader that has seen enough does not end the program before the files are written.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "harness";
  try {
    bench::prepare_peers(argv);
    bench::add_peers(registry);
    const bench::CommandLine line = bench::parse_command_line(program, bench::commands(), argc, argv);
    bench::Progress progress(isatty(STDERR_FILENO) != 0 ? &std::cerr : nullptr);
    std::ostream silence(nullptr);
    line.action({.registry = registry,
                 .command = line.command,
                 .out = std::cout,
                 .silence = silence,
                 .progress = progress});
    return finish_output(program);
  } catch (const bench::UsageError& error) {
    std::cerr << program << ": " << error.what() << " (--help shows the options)\n";
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << program << ": out of memory\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 1;
  }
}
