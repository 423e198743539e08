// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/partial_answer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace topksoftmax {
namespace {

using detail::MergedAnswers;
using detail::PartialAnswer;

/// log Σ exp(x), with more bits than doubles have.
long double log_sum(const std::vector<long double>& values) {
  long double most = values.front();
  for (const long double x : values) most = std::max(most, x);
  long double sum = 0.0L;
  for (const long double x : values) sum += std::exp(x - most);
  return most + std::log(sum);
}

PartialAnswer interval(double low, double log_z, double high) {
  PartialAnswer part;
  part.normalizer = Normalizer::interval;
  part.log_z_low = low;
  part.log_z = log_z;
  part.log_z_high = high;
  return part;
}

PartialAnswer known(Normalizer normalizer, double log_z) {
  PartialAnswer part = interval(log_z, log_z, log_z);
  part.normalizer = normalizer;
  return part;
}

TopK merged(const std::vector<PartialAnswer>& parts) {
  MergedAnswers all;
  for (const PartialAnswer& part : parts) all.add(part);
  TopK answer;
  all.store(true, answer);
  return answer;
}

// Messages of a batch lie behind each other, at any address.
TEST(PartialAnswer, AMessageIsReadAsItWasWritten) {
  TopK answer;
  answer.ids = {7, 3, 11};
  answer.logits = {2.5F, 2.5F, -1.0F};
  answer.normalizer = Normalizer::low_rank;
  answer.log_z = 3.0;
  answer.log_z_low = 2.75;
  answer.log_z_high = 3.5;
  answer.certified = false;
  answer.confidence = 0.75;
  answer.work = {.bytes_read = 5, .screened = 6, .candidates = 9, .fell_back = true, .repaired = true};
  std::vector<std::byte> memory(1 + PartialAnswer::message_bytes(answer.size()));
  detail::write_message(answer, memory.data() + 1);
  TopK read;
  const PartialAnswer part = detail::read_message(memory.data() + 1, [&](const ScoredToken& one) {
    read.ids.push_back(one.id);
    read.logits.push_back(one.logit);
  });
  EXPECT_EQ(part.tokens, 3U);
  EXPECT_EQ(read.ids, answer.ids);
  EXPECT_EQ(read.logits, answer.logits);
  MergedAnswers all;
  all.add(part);
  all.store(true, read);
  EXPECT_EQ(read.normalizer, answer.normalizer);
  EXPECT_EQ(read.log_z, answer.log_z);
  EXPECT_EQ(part.log_z_low, answer.log_z_low);
  EXPECT_EQ(part.log_z_high, answer.log_z_high);
  EXPECT_EQ(read.certified, answer.certified);
  EXPECT_EQ(read.confidence, answer.confidence);
  EXPECT_EQ(read.work.bytes_read, answer.work.bytes_read);
  EXPECT_EQ(read.work.screened, answer.work.screened);
  EXPECT_EQ(read.work.candidates, answer.work.candidates);
  EXPECT_TRUE(read.work.fell_back);
  EXPECT_TRUE(read.work.repaired);
}

// Intervals without any width leave room for nothing but the rounding of their sum.
TEST(MergedAnswers, IntervalsHoldTheSumWithoutRounding) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> uniform(-30.0, 40.0);
  for (std::size_t trial = 0; trial < 2000; ++trial) {
    std::vector<PartialAnswer> parts;
    std::vector<long double> values;
    for (std::size_t i = 0; i < 2 + trial % 30; ++i) {
      const double log_z = uniform(engine);
      parts.push_back(known(Normalizer::interval, log_z));
      values.push_back(log_z);
    }
    const TopK answer = merged(parts);
    const long double real = log_sum(values);
    ASSERT_LE(answer.log_z_low, real);
    ASSERT_GE(answer.log_z_high, real);
    ASSERT_LT(answer.log_z_high - answer.log_z_low, 1e-11);
    ASSERT_NEAR(answer.log_z, static_cast<double>(real), 1e-12);
  }
}

TEST(MergedAnswers, EndsOfIntervalsAddUpApart) {
  const TopK answer = merged({interval(1.0, 2.0, 4.0), interval(0.0, 3.0, 3.5), interval(-50.0, -9.0, -8.0)});
  EXPECT_EQ(answer.normalizer, Normalizer::interval);
  EXPECT_NEAR(answer.log_z_low, static_cast<double>(log_sum({1.0L, 0.0L, -50.0L})), 1e-12);
  EXPECT_NEAR(answer.log_z, static_cast<double>(log_sum({2.0L, 3.0L, -9.0L})), 1e-12);
  EXPECT_NEAR(answer.log_z_high, static_cast<double>(log_sum({4.0L, 3.5L, -8.0L})), 1e-12);
}

// An exact log Z is off by as much as summing in floats may be; next to an interval that counts.
TEST(MergedAnswers, AnExactPartOfAnIntervalMayBeRounded) {
  const double off = 0.999 * std::log1p(kernels::kSumExpError);
  for (const double error : {-off, off}) {
    const PartialAnswer exact = known(Normalizer::exact, 3.0 + error);
    const PartialAnswer other = known(Normalizer::interval, -2.0);
    const long double real = log_sum({3.0L, -2.0L});
    for (const auto& parts : {std::vector{exact, other}, std::vector{other, exact}}) {
      const TopK answer = merged(parts);
      EXPECT_EQ(answer.normalizer, Normalizer::interval);
      EXPECT_LE(answer.log_z_low, real);
      EXPECT_GE(answer.log_z_high, real);
    }
  }
}

TEST(MergedAnswers, AreWhatTheLeastKnownPartIs) {
  constexpr std::array kFromBestToWorst = {Normalizer::exact, Normalizer::interval, Normalizer::learned,
                                           Normalizer::low_rank, Normalizer::candidates};
  for (std::size_t i = 0; i < kFromBestToWorst.size(); ++i) {
    for (std::size_t j = 0; j < kFromBestToWorst.size(); ++j) {
      const TopK answer = merged({known(kFromBestToWorst[i], 1.0), known(kFromBestToWorst[j], 2.0)});
      EXPECT_EQ(answer.normalizer, kFromBestToWorst[std::max(i, j)]);
      EXPECT_NEAR(answer.log_z, static_cast<double>(log_sum({1.0L, 2.0L})), 1e-12);
    }
  }
}

// A rank none of whose tokens is allowed says nothing of log Z.
TEST(MergedAnswers, PartsWithoutMassChangeNothing) {
  const PartialAnswer none;
  const TopK answer = merged({none, interval(1.0, 1.5, 2.0), none});
  EXPECT_EQ(answer.normalizer, Normalizer::interval);
  EXPECT_EQ(answer.log_z_low, 1.0);
  EXPECT_EQ(answer.log_z, 1.5);
  EXPECT_EQ(answer.log_z_high, 2.0);
}

TEST(MergedAnswers, AddUpDoubtsAndWork) {
  PartialAnswer sure = known(Normalizer::interval, 1.0);
  sure.bytes_read = 10;
  sure.screened = 20;
  sure.candidates = 30;
  PartialAnswer doubtful = sure;
  doubtful.certified = false;
  doubtful.confidence = 0.75;
  doubtful.fell_back = true;
  doubtful.repaired = true;
  EXPECT_TRUE(merged({sure, sure}).certified);
  EXPECT_EQ(merged({sure, sure}).confidence, 1.0);
  for (const auto& parts : {std::vector{sure, doubtful, doubtful}, std::vector{doubtful, doubtful, sure}}) {
    const TopK answer = merged(parts);
    EXPECT_FALSE(answer.certified);
    EXPECT_EQ(answer.confidence, 0.5);
    EXPECT_EQ(answer.work.bytes_read, 30U);
    EXPECT_EQ(answer.work.screened, 60U);
    EXPECT_EQ(answer.work.candidates, 90U);
    EXPECT_TRUE(answer.work.fell_back);
    EXPECT_TRUE(answer.work.repaired);
  }
  EXPECT_EQ(merged({doubtful, doubtful, doubtful, doubtful, doubtful}).confidence, 0.0);
}

}  // namespace
}  // namespace topksoftmax
