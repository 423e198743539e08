// SPDX-License-Identifier: Apache-2.0
#include "harness/text/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string_view>

#include "harness/text/characters.hpp"
#include "harness/text/line_length.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::string_view kBetween = "  ";

/// One past the last column of those from `first` on that stand on a line of so many characters beside the
/// first of all; at least one does.
std::size_t end_of_part(const std::vector<std::size_t>& widths, std::size_t first, std::size_t columns) {
  std::size_t used = widths.front();
  std::size_t end = first;
  for (; end < widths.size(); ++end) {
    if (widths[end] == 0) continue;
    used += kBetween.size() + widths[end];
    if (used > columns && end > first) break;
  }
  return end;
}

}  // namespace

void Table::print(std::ostream& out) const {
  print(out, line_length(out));
}

void Table::print(std::ostream& out, std::size_t columns) const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters(row[c]));
  }
  const auto print_part = [&](std::size_t first, std::size_t end) {
    for (const std::vector<std::string>& row : rows_) {
      std::string line = row.front() + std::string(widths.front() - characters(row.front()), ' ');
      for (std::size_t c = first; c < end; ++c) {
        const std::string padding(widths[c] - characters(row[c]), ' ');
        line += std::string(kBetween) + (c + 1 == row.size() ? row[c] : padding + row[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out << line << '\n';
    }
  };
  for (std::size_t first = 1; first < widths.size();) {
    const std::size_t end = end_of_part(widths, first, columns);
    if (first > 1) out << '\n';
    print_part(first, end);
    first = end;
  }
}

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace topksoftmax::bench
