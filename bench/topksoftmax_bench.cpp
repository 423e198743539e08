// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>

#include "harness/command_line.hpp"
#include "harness/progress.hpp"
#include "harness/run.hpp"
#include "harness/usage_error.hpp"
#include "peers/peers.hpp"

int main(int argc, char** argv) {
  namespace bench = topksoftmax::bench;
  try {
    bench::prepare_peers(argv);
    const bench::CommandLine line = bench::parse_command_line(argc, argv);
    bench::Progress progress(isatty(STDERR_FILENO) != 0 ? &std::cerr : nullptr);
    bench::run(line, std::cout, progress);
    return 0;
  } catch (const bench::UsageError& error) {
    std::cerr << "topksoftmax-bench: " << error.what() << " (--help shows the options)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "topksoftmax-bench: " << error.what() << '\n';
    return 1;
  }
}
