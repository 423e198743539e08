// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/error.hpp"

#include <gtest/gtest.h>

namespace topksoftmax {
namespace {

TEST(Error, CarriesItsMessageAndIsARuntimeError) {
  try {
    throw Error("dim is 3, the layer's is 4");
  } catch (const std::runtime_error& caught) {
    EXPECT_STREQ(caught.what(), "dim is 3, the layer's is 4");
  }
}

}  // namespace
}  // namespace topksoftmax
