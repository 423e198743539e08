// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/batching.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace topksoftmax {
namespace {

/// Sentences of given lengths; checks what every way of batching promises.
class Sentences {
 public:
  explicit Sentences(std::vector<std::size_t> lengths)
      : lengths_(std::move(lengths)), encoded_(lengths_.size()), steps_(lengths_.size()) {}

  BatchWork work() {
    return {.encode =
                [this](std::span<const std::size_t> sentences) {
                  if (std::find(sentences.begin(), sentences.end(), throw_in_encode) != sentences.end())
                    throw std::runtime_error("encode");
                  for (const std::size_t s : sentences) EXPECT_FALSE(encoded_[s].exchange(true)) << s;
                },
            .decode =
                [this](std::span<const std::size_t> sentences, std::span<bool> finished) {
                  if (++decodes_ == throw_in_decode) throw std::runtime_error("decode");
                  if (decodes_ == stop_at) stop.request_stop();
                  for (std::size_t i = 0; i < sentences.size(); ++i) {
                    EXPECT_TRUE(encoded_[sentences[i]]);
                    finished[i] = ++steps_[sentences[i]] == lengths_[sentences[i]];
                  }
                },
            .emit =
                [this](std::size_t sentence) {
                  if (sentence == throw_in_emit) throw std::runtime_error("emit");
                  EXPECT_EQ(sentence, emitted.size());
                  EXPECT_EQ(steps_[sentence], lengths_[sentence]);
                  emitted.push_back(sentence);
                }};
  }

  static constexpr std::size_t never = static_cast<std::size_t>(-1);
  std::size_t throw_in_encode = never;
  std::size_t throw_in_decode = never;
  std::size_t throw_in_emit = never;
  std::size_t stop_at = never;
  std::stop_source stop;
  std::vector<std::size_t> emitted;

  const std::vector<std::size_t>& lengths() const { return lengths_; }
  bool encoded(std::size_t sentence) const { return encoded_[sentence]; }
  bool decoded(std::size_t sentence) const { return steps_[sentence] == lengths_[sentence]; }
  std::size_t tokens() const { return std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0}); }

 private:
  std::vector<std::size_t> lengths_;
  std::vector<std::atomic<bool>> encoded_;
  std::vector<std::size_t> steps_;
  std::size_t decodes_ = 0;
};

std::vector<std::size_t> some_lengths(std::size_t count) {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < count; ++i) lengths.push_back(1 + i * 7919 % 23);
  return lengths;
}

struct Way {
  const char* name;
  std::function<BatchReport(Sentences&)> run;
};

const std::vector<Way> kWays = {
    {"mini",
     [](Sentences& sentences) {
       return mini_batching(sentences.lengths().size(), sentences.work(), {.batch = 8},
                            sentences.stop.get_token());
     }},
    {"maxi",
     [](Sentences& sentences) {
       return maxi_batching(sentences.lengths(), sentences.work(), {.batch = 8, .maxi = 40},
                            sentences.stop.get_token());
     }},
    {"top-up",
     [](Sentences& sentences) {
       return top_up_batching(sentences.lengths().size(), sentences.work(),
                              {.batch = 8, .encode = 3, .queue = 5}, sentences.stop.get_token());
     }},
};

TEST(Batching, EverySentenceComesOutOnceAndInOrder) {
  for (const Way& way : kWays) {
    for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 100U}) {
      Sentences sentences(some_lengths(count));
      const BatchReport report = way.run(sentences);
      EXPECT_EQ(sentences.emitted.size(), count) << way.name;
      EXPECT_EQ(report.emitted, count);
      EXPECT_FALSE(report.cancelled);
      EXPECT_EQ(report.decoded, sentences.tokens());
      std::size_t steps = 0;
      std::size_t decoded = 0;
      for (std::size_t size = 0; size < report.steps_at.size(); ++size) {
        steps += report.steps_at[size];
        decoded += size * report.steps_at[size];
      }
      EXPECT_EQ(report.steps_at.size(), 9U);
      EXPECT_EQ(report.steps_at[0], 0U);
      EXPECT_EQ(steps, report.steps);
      EXPECT_EQ(decoded, report.decoded);
    }
  }
}

/// What a way of batching throws; "" if nothing.
std::string thrown_by(const Way& way, Sentences& sentences) {
  try {
    way.run(sentences);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// Sentences 0, 1, … up to the first that is not decoded to its end.
std::size_t decoded_before_any_other(const Sentences& sentences) {
  std::size_t count = 0;
  while (count < sentences.lengths().size() && sentences.decoded(count)) ++count;
  return count;
}

TEST(Batching, WhatEncodingThrowsComesAfterWhatWasEncodedBefore) {
  for (const Way& way : kWays) {
    for (const std::size_t when : {0U, 1U, 13U, 59U}) {
      Sentences sentences(some_lengths(60));
      sentences.throw_in_encode = when;
      EXPECT_EQ(thrown_by(way, sentences), "encode") << way.name << when;
      for (std::size_t s = 0; s < 60; ++s)
        EXPECT_EQ(sentences.decoded(s), sentences.encoded(s)) << way.name << s;
      EXPECT_EQ(sentences.emitted.size(), decoded_before_any_other(sentences)) << way.name << when;
    }
  }
  // Those of the groups before its own.
  Sentences mini(some_lengths(60));
  mini.throw_in_encode = 13;
  thrown_by(kWays[0], mini);
  EXPECT_EQ(mini.emitted.size(), 8U);
  Sentences top_up(some_lengths(60));
  top_up.throw_in_encode = 13;
  thrown_by(kWays[2], top_up);
  EXPECT_EQ(top_up.emitted.size(), 12U);
}

TEST(Batching, WhatDecodingThrowsComesAfterWhatEndedBefore) {
  for (const Way& way : kWays) {
    for (const std::size_t when : {1U, 2U, 14U, 60U}) {
      Sentences sentences(some_lengths(60));
      sentences.throw_in_decode = when;
      EXPECT_EQ(thrown_by(way, sentences), "decode") << way.name << when;
      EXPECT_EQ(sentences.emitted.size(), decoded_before_any_other(sentences)) << way.name << when;
    }
  }
}

TEST(Batching, WhatEmittingThrowsComesAfterTheSentencesBefore) {
  for (const Way& way : kWays) {
    for (const std::size_t when : {0U, 1U, 13U, 59U}) {
      Sentences sentences(some_lengths(60));
      sentences.throw_in_emit = when;
      EXPECT_EQ(thrown_by(way, sentences), "emit") << way.name << when;
      EXPECT_EQ(sentences.emitted.size(), when) << way.name;
    }
  }
}

TEST(Batching, AStopLeavesWholeSentences) {
  for (const Way& way : kWays) {
    for (const std::size_t when : {1U, 2U, 30U, 77U}) {
      Sentences sentences(some_lengths(100));
      sentences.stop_at = when;
      const BatchReport report = way.run(sentences);
      EXPECT_TRUE(report.cancelled) << way.name;
      EXPECT_EQ(report.steps, when);
      EXPECT_EQ(report.emitted, sentences.emitted.size());
    }
    Sentences sentences(some_lengths(100));
    sentences.stop.request_stop();
    EXPECT_TRUE(way.run(sentences).cancelled);
    EXPECT_TRUE(sentences.emitted.empty());
  }
}

TEST(Batching, MiniBatchesRunDown) {
  Sentences sentences({1, 2, 3, 4, 1});
  const BatchReport report = mini_batching(5, sentences.work(), {.batch = 4});
  EXPECT_EQ(report.steps_at, (std::vector<std::size_t>{0, 2, 1, 1, 1}));
  EXPECT_DOUBLE_EQ(report.mean_batch(), 11.0 / 5.0);
}

TEST(Batching, MaxiBatchesAreOfLikeLengths) {
  Sentences sentences({1, 9, 1, 9, 1, 9, 1, 9});
  const BatchReport report = maxi_batching(sentences.lengths(), sentences.work(), {.batch = 4, .maxi = 8});
  EXPECT_EQ(report.steps_at, (std::vector<std::size_t>{0, 0, 0, 0, 10}));
}

TEST(Batching, TopUpKeepsTheBatchFuller) {
  // Decoding waits until the third group of sentences is encoded: the first two, all but one sentence, are in
  // the queue then, whatever the threads do.
  constexpr std::size_t count = 201;
  const std::vector<std::size_t> lengths = some_lengths(count);
  Sentences mini(lengths);
  Sentences top_up(lengths);
  const BatchReport run_down = mini_batching(count, mini.work(), {.batch = 16});
  std::atomic<int> groups = 0;
  BatchWork work = top_up.work();
  work.encode = [&groups, inner = work.encode](std::span<const std::size_t> sentences) {
    ++groups;
    inner(sentences);
  };
  work.decode = [&groups, inner = work.decode](std::span<const std::size_t> sentences,
                                               std::span<bool> finished) {
    while (groups < 3) std::this_thread::yield();
    inner(sentences, finished);
  };
  const BatchReport refilled = top_up_batching(count, work, {.batch = 16, .encode = 100, .queue = count});
  EXPECT_LT(refilled.steps, run_down.steps);
  EXPECT_GT(refilled.mean_batch(), run_down.mean_batch());
}

TEST(Batching, RefusesUnusableOptions) {
  Sentences sentences({1});
  const BatchWork work = sentences.work();
  EXPECT_THROW(mini_batching(1, work, {.batch = 0}), std::invalid_argument);
  EXPECT_THROW(maxi_batching(sentences.lengths(), work, {.batch = 0}), std::invalid_argument);
  EXPECT_THROW(maxi_batching(sentences.lengths(), work, {.maxi = 0}), std::invalid_argument);
  EXPECT_THROW(top_up_batching(1, work, {.batch = 0}), std::invalid_argument);
  EXPECT_THROW(top_up_batching(1, work, {.encode = 0}), std::invalid_argument);
  EXPECT_THROW(top_up_batching(1, work, {.queue = 0}), std::invalid_argument);
  EXPECT_THROW(top_up_batching(1, work, {.refill_at = 1.0}), std::invalid_argument);
  EXPECT_THROW(top_up_batching(1, work, {.refill_at = -0.1}), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
