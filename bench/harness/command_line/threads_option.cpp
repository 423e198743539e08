// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/threads_option.hpp"

#include <CLI/CLI.hpp>
#include <string>

#include "harness/command_line/usage_error.hpp"
#include "harness/command_line/validators.hpp"

namespace topksoftmax::bench {

void add_threads(CLI::App& app, std::size_t& threads) {
  constexpr std::size_t kMost = 4096;  // more have no use on any machine, and each takes memory
  app.add_option("--threads", threads,
                 "Threads that answer a query together, or share the contexts of a batch")
      ->check(whole_number(1, kMost))
      ->type_name("N")
      ->capture_default_str();
}

void check_threads(std::size_t threads, std::size_t batch, const char* otherwise) {
  if (batch <= 1 || threads <= batch) return;
  const std::string count = std::to_string(threads);
  throw UsageError("--threads " + count + " needs --batch " + count +
                   " or more, as threads share the contexts of a batch" + otherwise);
}

}  // namespace topksoftmax::bench
