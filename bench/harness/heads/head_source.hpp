// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/files/output_file.hpp"

namespace CLI {
class App;
}

namespace topksoftmax::bench {

/// Where a head is read from.
struct HeadSource {
  std::filesystem::path head;      ///< a file of any format that is read, or the folder of a model
  std::filesystem::path contexts;  ///< empty: those of the head file
  std::string tensor;              ///< the weights' name in it; empty: found by the names that models have
  std::string bias;                ///< that of the bias; likewise
};

/// The files that are read for it.
std::vector<NamedFile> files_of(const HeadSource& source);

/// Declares --head, which must be given, --contexts, --tensor and --bias.
void declare_head(CLI::App& app, HeadSource& source);

/// The same without --contexts.
void declare_layer(CLI::App& app, HeadSource& source);

/// --tensor and --bias alone.
void declare_tensors(CLI::App& app, HeadSource& source);

}  // namespace topksoftmax::bench
