// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/pinned_thread.hpp"

#include <gtest/gtest.h>

#ifdef __linux__
#include <sched.h>
#endif

namespace topksoftmax {
namespace {

#ifdef __linux__
int processors() {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return CPU_COUNT(&allowed);
}

TEST(PinnedThread, KeepsOneProcessorAndGivesTheOthersBack) {
  const int before = processors();
  {
    const PinnedThread pinned;
    EXPECT_EQ(processors(), 1);
  }
  EXPECT_EQ(processors(), before);
}
#endif

}  // namespace
}  // namespace topksoftmax
