// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace topksoftmax::bench {

/// A table of text of at least two columns, aligned: the first to the left, the others to the right, the last
/// one to the left.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_({std::move(header)}) {}

  /// Adds a row of as many cells as the header has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Prints it in lines that `out` holds: see line_length().
  void print(std::ostream& out) const;
  /// The same in lines of so many characters. What does not fit beside each other stands below each other,
  /// with the first column again.
  void print(std::ostream& out, std::size_t columns) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A number with so many digits behind the point; "-" where it is none.
std::string fixed(double value, int digits);

/// A number with three significant digits, at most two of them behind the point: 3.14, 31.4, 314.
std::string three_digits(double value);

}  // namespace topksoftmax::bench
