// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>

namespace topksoftmax::bench {

/// Opened before anything is measured, so that a wrong name costs nothing. Throws Error.
std::ofstream open_output(const std::filesystem::path& path);

/// Throws Error if what was written did not arrive.
void close_output(std::ofstream& file, const std::filesystem::path& path);

}  // namespace topksoftmax::bench
