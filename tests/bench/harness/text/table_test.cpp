// SPDX-License-Identifier: Apache-2.0
#include "harness/text/table.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

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
