// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace CLI {
class App;
}

namespace topksoftmax::bench {

/// Declares --threads, of those that answer.
void add_threads(CLI::App& app, std::size_t& threads);

/// Throws UsageError where threads are more than the contexts of a batch, which they share. What else the
/// user may ask for, if anything, ends the sentence.
void check_threads(std::size_t threads, std::size_t batch, const char* otherwise = "");

}  // namespace topksoftmax::bench
