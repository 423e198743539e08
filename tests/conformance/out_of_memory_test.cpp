// SPDX-License-Identifier: Apache-2.0
//
// What every backend must do when memory runs out, whichever allocation it is that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "conformance/backends.hpp"
#include "support/allocations.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"

namespace topksoftmax {
namespace {

using testing::Backend;
using testing::clustered_contexts;
using testing::FailingAllocation;
using testing::live_allocations;

constexpr Eigen::Index kVocab = 700;
constexpr Eigen::Index kDim = 24;
constexpr Eigen::Index kBatch = 20;

bool same(const TopK& a, const TopK& b) {
  using testing::same;
  return a.ids == b.ids && a.logits == b.logits && same(a.log_z, b.log_z) && same(a.log_z_low, b.log_z_low) &&
         same(a.log_z_high, b.log_z_high) && a.normalizer == b.normalizer && a.certified == b.certified &&
         a.work.bytes_read == b.work.bytes_read && a.work.screened == b.work.screened &&
         a.work.candidates == b.work.candidates && a.work.fell_back == b.work.fell_back &&
         a.work.repaired == b.work.repaired;
}

/// Whether `work` ran out of memory when its n-th allocation failed.
enum class Outcome { done, threw, swallowed };

template <class Work>
Outcome fail_allocation(std::size_t n, const Work& work) {
  const FailingAllocation failing(n);
  try {
    work();
  } catch (const std::bad_alloc&) {
    return Outcome::threw;
  }
  return failing.has_failed() ? Outcome::swallowed : Outcome::done;
}

struct Asked {
  std::string name;
  QueryOptions options;
};

class OutOfMemory : public ::testing::TestWithParam<Backend> {
 protected:
  OutOfMemory() {
    for (TokenId id = 0; id < kVocab; id += 3) most_.allow(id);
    for (TokenId id = 0; id < 20; ++id) few_.allow(id * 30);
  }

  void SetUp() override {
    if (!testing::can_fail_allocations()) GTEST_SKIP() << "this sanitizer insists on its own operator new";
  }

  const TopKSoftmax& head() const {
    static std::map<std::string, std::unique_ptr<TopKSoftmax>> built;
    auto& backend = built[GetParam().name];
    if (!backend) {
      backend = GetParam().make(testing::random_layer(kVocab, kDim, 1), clustered_contexts(300, kDim, 12, 2));
    }
    return *backend;
  }

  /// Queries that take every way through the backends.
  std::vector<Asked> questions() const {
    return {{"plain", {.k = 5}},
            {"ids alone", {.k = 5, .probabilities = false}},
            {"biased", {.k = 5, .logit_bias = bias_}},
            {"few allowed", {.k = 5, .allowed = few_}},
            {"most allowed", {.k = 5, .allowed = most_, .logit_bias = bias_}},
            {"some effort", {.k = 5, .effort = 3}},
            {"full effort", {.k = 5, .effort = QueryOptions::full_effort}},
            {"narrow", {.k = 5, .log_z_tolerance = 0.05}},
            {"all", {.k = kVocab}}};
  }

  /// Lets each allocation of ask(workspaces, answers) fail once: every answer is whole then, or as it was.
  template <class Ask>
  static void expect_whole_answers(const std::vector<TopK>& truth, const TopK& before, std::size_t threads,
                                   const Ask& ask) {
    Outcome outcome = Outcome::threw;
    for (std::size_t n = 1; outcome != Outcome::done; ++n) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      const std::ptrdiff_t live = live_allocations();
      {
        std::vector<Workspace> workspaces(threads);
        std::vector<TopK> answers(truth.size(), before);
        outcome = fail_allocation(n, [&] { ask(workspaces, answers); });
        ASSERT_NE(outcome, Outcome::swallowed);
        for (std::size_t q = 0; q < truth.size(); ++q) {
          const bool untouched = outcome == Outcome::threw && same(answers[q], before);
          ASSERT_TRUE(untouched || same(answers[q], truth[q])) << "answer " << q;
        }
        ask(workspaces, answers);
        for (std::size_t q = 0; q < truth.size(); ++q)
          ASSERT_TRUE(same(answers[q], truth[q])) << "answer " << q;
      }
      ASSERT_EQ(live_allocations(), live);
    }
  }

  RowMajorMatrix contexts_ = clustered_contexts(2 * kBatch, kDim, 12, 2).bottomRows(kBatch);
  TokenMask most_{kVocab};
  TokenMask few_{kVocab};
  std::vector<TokenBias> bias_ = {{3, 2.0F}, {77, -1.0F}, {699, 4.0F}};
};

TEST_P(OutOfMemory, AQueryThrowsAndLeavesItsAnswerAlone) {
  const Eigen::VectorXf h = contexts_.row(0);
  const TopK before = head().query(contexts_.row(1), {.k = 2});
  for (const Asked& asked : questions()) {
    const TopK truth = head().query(h, asked.options);
    Outcome outcome = Outcome::threw;
    for (std::size_t n = 1; outcome != Outcome::done; ++n) {
      SCOPED_TRACE(asked.name + ", allocation " + std::to_string(n));
      const std::ptrdiff_t live = live_allocations();
      {
        Workspace workspace;
        TopK answer = before;
        outcome = fail_allocation(n, [&] { head().query(h, asked.options, workspace, answer); });
        ASSERT_NE(outcome, Outcome::swallowed);
        ASSERT_TRUE(n > 1 || outcome == Outcome::threw);
        ASSERT_TRUE(same(answer, outcome == Outcome::threw ? before : truth));
        head().query(h, asked.options, workspace, answer);
        ASSERT_TRUE(same(answer, truth)) << "the workspace must go on serving";
      }
      ASSERT_EQ(live_allocations(), live);
    }
  }
}

TEST_P(OutOfMemory, ABatchThrowsOnceAndHalvesNoAnswer) {
  const TopK before = head().query(contexts_.row(1), {.k = 2});
  for (const std::size_t threads : {1U, 4U}) {
    for (const Asked& asked : questions()) {
      std::vector<TopK> truth(kBatch);
      std::vector<Workspace> warm(threads);
      head().query_batch(contexts_, asked.options, warm, truth);
      SCOPED_TRACE(asked.name + ", " + std::to_string(threads) + " threads");
      expect_whole_answers(truth, before, threads, [&](auto& workspaces, auto& answers) {
        head().query_batch(contexts_, asked.options, workspaces, answers);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OutOfMemory, ContextsWithOptionsOfTheirOwnLeaveNoAnswerHalfMade) {
  const TopK before = head().query(contexts_.row(1), {.k = 2});
  std::vector<QueryOptions> options;
  for (const Asked& asked : questions()) options.push_back(asked.options);
  const std::size_t batch = options.size();
  RowMajorMatrix H(static_cast<Eigen::Index>(batch), kDim);
  for (Eigen::Index q = 0; q < H.rows(); ++q) H.row(q) = contexts_.row(q % contexts_.rows());
  const std::vector<TopK> truth = head().query_each(Contexts::of(H), options);
  expect_whole_answers(truth, before, 1, [&](auto& workspaces, auto& answers) {
    head().query_each(Contexts::of(H), options, workspaces, answers);
  });
}

/// TOPKSOFTMAX_EVERY_ALLOCATION: whether each allocation of a build fails once, rather than some of them.
bool every_allocation_wanted() {
  return std::getenv("TOPKSOFTMAX_EVERY_ALLOCATION") != nullptr;
}

TEST_P(OutOfMemory, ABuildThrowsOnceAndLeaksNothing) {
  if (GetParam().description.kind == "fgd")
    GTEST_SKIP() << "hnswlib loses hold of the rows visited when an insertion throws";
  const SoftmaxLayer layer = testing::random_layer(90, 8, 1);
  const RowMajorMatrix contexts = clustered_contexts(600, 8, 4, 2);
  // OpenMP's runtime makes its threads at the first parallel region, and Clang's waits for ever if that
  // fails.
  const TopK truth = GetParam().make(layer, contexts)->query(contexts.row(0), {.k = 5});
  const bool every = every_allocation_wanted();
  Outcome outcome = Outcome::threw;
  for (std::size_t n = 1; outcome != Outcome::done; n += every ? 1 : 1 + n / 4) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    const std::ptrdiff_t live = live_allocations();
    outcome = fail_allocation(n, [&] { GetParam().make(layer, contexts); });
    ASSERT_NE(outcome, Outcome::swallowed);
    ASSERT_EQ(live_allocations(), live);
  }
  EXPECT_TRUE(same(GetParam().make(layer, contexts)->query(contexts.row(0), {.k = 5}), truth));
}

INSTANTIATE_TEST_SUITE_P(Backends, OutOfMemory, ::testing::ValuesIn(testing::all_backends()),
                         [](const auto& backend) { return testing::suite_name(backend.param); });

}  // namespace
}  // namespace topksoftmax
