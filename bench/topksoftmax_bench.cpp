// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>

#include "harness/command_line.hpp"
#include "harness/progress.hpp"
#include "harness/run.hpp"
#include "harness/usage_error.hpp"
#include "peers/peers.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace {

/// Whether standard output is a pipe that nobody reads any more.
bool reader_is_gone() {
  pollfd standard = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&standard, 1, 0) == 1 && (standard.revents & (POLLERR | POLLHUP)) != 0;
}

/// The exit code, by whether all that was printed has arrived.
int finish_output() {
  if (std::cout.flush()) return 0;
  if (!reader_is_gone()) std::cerr << "topksoftmax-bench: standard output cannot be written\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  namespace bench = topksoftmax::bench;
  // A reader that has seen enough does not end the program before the files are written.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    bench::prepare_peers(argv);
    topksoftmax::Registry registry = topksoftmax::Registry::standard();
    bench::add_peers(registry);
    const bench::CommandLine line = bench::parse_command_line(argc, argv);
    bench::Progress progress(isatty(STDERR_FILENO) != 0 ? &std::cerr : nullptr);
    bench::run(registry, line, std::cout, progress);
    return finish_output();
  } catch (const bench::UsageError& error) {
    std::cerr << "topksoftmax-bench: " << error.what() << " (--help shows the options)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "topksoftmax-bench: " << error.what() << '\n';
    return 1;
  }
}
