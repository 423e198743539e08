// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// Contexts to answer, one after the other: of an array file (see load_all_contexts), or of text as it
/// arrives, a line each, numbers with blanks, commas or brackets between them. Empty lines and those that
/// begin with # are passed over.
class ContextStream {
 public:
  /// Reads a file, or `standard_input` where the path is "-"; a pipe may bring a .npy too. Throws Error where
  /// that cannot be read or does not hold contexts of the layer, as load_all_contexts does.
  ContextStream(const std::filesystem::path& path, std::istream& standard_input, const SoftmaxLayer& layer);

  /// The next contexts [n,d], as many as are left but `most`; none at the end. Throws Error for a line that
  /// is no context, where reading fails, and at the end of a file that holds none.
  RowMajorMatrix next(std::size_t most);

 private:
  /// Reads a .npy; text is read as it arrives.
  void take(std::istream& stream);
  bool read_line(float* out);
  RowMajorMatrix read_next(Eigen::Index most);

  std::string name_;
  SoftmaxLayer layer_;
  bool must_hold_some_;
  std::ifstream file_;
  std::istream* text_ = nullptr;  ///< null: there is an array
  std::size_t line_ = 0;
  RowMajorMatrix array_;
  Eigen::Index taken_ = 0;
};

}  // namespace topksoftmax::bench
