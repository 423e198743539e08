// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/bandwidth.hpp"

#include <gtest/gtest.h>

#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

TEST(ReadProbe, ReadsABufferOfAtLeastTheSizeAskedFor) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{100000}}) {
    ReadProbe probe(bytes);
    EXPECT_GE(probe.bytes(), bytes);
    EXPECT_LE(probe.bytes(), bytes + 4096);
    EXPECT_GT(probe.bytes(), 0U);
    probe.read();
    probe.read(3, ThreadPool(3));
  }
}

}  // namespace
}  // namespace topksoftmax
