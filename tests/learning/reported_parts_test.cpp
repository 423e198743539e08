// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/learning/reported_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using Parts = std::vector<std::pair<std::size_t, std::size_t>>;

Parts parts_of(std::size_t total, std::size_t size, const StepProgress& report) {
  Parts parts;
  std::mutex mutex;
  detail::for_each_reported_part(ThreadPool(3), total, size, report,
                                 [&](std::size_t first, std::size_t count) {
                                   const std::scoped_lock lock(mutex);
                                   parts.emplace_back(first, count);
                                 });
  std::sort(parts.begin(), parts.end());
  return parts;
}

TEST(ReportedParts, AreThoseOfOneRun) {
  for (const std::size_t total : {0U, 1U, 7U, 8U, 1000U, 9001U}) {
    std::vector<double> told;
    EXPECT_EQ(parts_of(total, 7, [&told](double done) { told.push_back(done); }), parts_of(total, 7, {}));
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_LE(told.size(), 51U);
    EXPECT_EQ(told.empty() ? 1.0 : told.back(), 1.0);
  }
}

TEST(ReportedParts, AreLeftOutAfterAReportThatThrows) {
  std::size_t done = 0;
  const auto stop = [](double) { throw std::domain_error("enough"); };
  EXPECT_THROW(detail::for_each_reported_part(SerialExecutor(), 1000, 1, stop,
                                              [&](std::size_t, std::size_t count) { done += count; }),
               std::domain_error);
  EXPECT_LT(done, 50U);
}

}  // namespace
}  // namespace topksoftmax
