// SPDX-License-Identifier: Apache-2.0
#include "harness/text/table.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <sstream>
#include <string>

namespace topksoftmax::bench {
namespace {

TEST(Table, AlignsItsColumns) {
  Table table({"name", "µs", "note"});
  table.add({"a", "10.00", ""});
  table.add({"longer", "1.5", "text"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(),
            "name       µs  note\n"
            "a       10.00\n"
            "longer    1.5  text\n");
}

TEST(Table, ContinuesBelowWhereALineIsShort) {
  Table table({"name", "µs", "speedup", "P@1", ""});
  table.add({"fused", "10.00", "1.00", "1.0000", ""});
  table.add({"l2s", "1.5", "6.67", "0.9900", ""});
  const auto printed = [&](std::size_t columns) {
    std::ostringstream out;
    table.print(out, columns);
    return out.str();
  };
  const std::string all =
      "name      µs  speedup     P@1\n"
      "fused  10.00     1.00  1.0000\n"
      "l2s      1.5     6.67  0.9900\n";
  EXPECT_EQ(printed(29), all);
  EXPECT_EQ(printed(28),
            "name      µs  speedup\n"
            "fused  10.00     1.00\n"
            "l2s      1.5     6.67\n"
            "\n"
            "name      P@1\n"
            "fused  1.0000\n"
            "l2s    0.9900\n");
  EXPECT_EQ(printed(1),  // a column that fits nowhere still stands on a line
            "name      µs\nfused  10.00\nl2s      1.5\n\n"
            "name   speedup\nfused     1.00\nl2s       6.67\n\n"
            "name      P@1\nfused  1.0000\nl2s    0.9900\n");
}

TEST(Table, WritesNumbers) {
  EXPECT_EQ(fixed(1.005, 1), "1.0");
  EXPECT_EQ(fixed(std::numeric_limits<double>::quiet_NaN(), 3), "-");
  EXPECT_EQ(three_digits(0.123), "0.12");
  EXPECT_EQ(three_digits(9.996), "10.0");
  EXPECT_EQ(three_digits(31.44), "31.4");
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(8040.2), "8040");
}

}  // namespace
}  // namespace topksoftmax::bench
