// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong on one rank goes wrong on all, with a sentence, and no rank waits for ever.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "distributed/ranks.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::random_layer;
using testing::random_vector;
using testing::rank_count;
using testing::sharded;
using testing::spreads;
using testing::this_rank;

constexpr Eigen::Index kDim = 8;

/// The message of the std::invalid_argument that an action throws, or "".
std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// What one rank asks otherwise than the others, each of whom must be told.
class OneRankAsksOtherwise : public ::testing::Test {
 protected:
  void SetUp() override {
    if (rank_count() == 1) GTEST_SKIP() << "there are no others";
  }

  bool otherwise() const { return this_rank() == rank_count() - 1; }

  /// All ranks refuse; `own` is part of what the one that asks otherwise says. The head remains usable.
  void expect_refused(const std::function<void(const ShardedSoftmax&)>& ask, const std::string& own) {
    const std::string said = refusal_of([&] { ask(*head_); });
    const std::string rank = std::to_string(rank_count() - 1);
    if (otherwise()) {
      EXPECT_EQ(said.find("rank "), std::string::npos) << said;
    } else {
      EXPECT_EQ(said.find("rank " + rank + ": "), 0U) << said;
    }
    EXPECT_NE(said.find(own), std::string::npos) << said;
    expect_usable();
  }

  /// All ranks refuse alike: none of them knows who is right.
  void expect_noticed(const std::function<void(const ShardedSoftmax&)>& ask) {
    const std::string said = refusal_of([&] { ask(*head_); });
    EXPECT_NE(said.find("was asked something else than rank 0; every rank must be asked the same"),
              std::string::npos)
        << said;
    expect_usable();
  }

  void expect_usable() const {
    testing::expect_same(head_->query(good_, {.k = 4}), Fused::make(layer_)->query(good_, {.k = 4}));
  }

  SoftmaxLayer layer_ = random_layer(200, kDim, 3);
  std::unique_ptr<ShardedSoftmax> head_ = sharded(layer_, spreads()[0], &Fused::make);
  Eigen::VectorXf good_ = random_vector(kDim, 4);
};

TEST_F(OneRankAsksOtherwise, ABadContextIsRefusedByAll) {
  Eigen::VectorXf bad = good_;
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  const Eigen::VectorXf& h = otherwise() ? bad : good_;
  Workspace workspace;
  TopK answer = Fused::make(layer_)->query(good_, {.k = 2});
  const TopK before = answer;
  const std::string not_finite = "query: h[3] is NaN";
  expect_refused([&](const auto& head) { head.query(h, {.k = 4}, workspace, answer); }, not_finite);
  testing::expect_same(answer, before);
  expect_refused([&](const auto& head) { head.logits(h, {}, workspace); }, not_finite);
  expect_refused(
      [&](const auto& head) {
        const TokenId ids[] = {1, 2};
        float logits[2];
        head.logits_of(std::span(h.data(), kDim), ids, {}, workspace, logits);
      },
      not_finite);
  RowMajorMatrix H = RowMajorMatrix::Ones(6, kDim);
  H.row(5) = h;
  expect_refused([&](const auto& head) { head.query_batch(H, {.k = 4}); }, not_finite);
}

TEST_F(OneRankAsksOtherwise, BadOptionsAreRefusedByAll) {
  std::vector<Workspace> none;
  TopK answer;
  expect_refused([&](const auto& head) { head.query(good_, {.k = otherwise() ? 0U : 3U}); }, "query: k is 0");
  expect_refused(
      [&](const auto& head) {
        std::vector<Workspace> workspaces(otherwise() ? 0 : 2);
        head.query(good_, {.k = 3}, workspaces, answer);
      },
      "query: there is no workspace");
  expect_refused(
      [&](const auto& head) {
        const RowMajorMatrix H = RowMajorMatrix::Ones(6, kDim);
        std::vector<Workspace> workspaces(1);
        std::vector<TopK> answers(otherwise() ? 5 : 6);
        head.query_batch(H, {.k = 3}, workspaces, answers);
      },
      "query_batch: there are 6 contexts and 5 answers");
}

TEST_F(OneRankAsksOtherwise, OtherQuestionsAreNoticed) {
  const Eigen::VectorXf other = random_vector(kDim, 5);
  const std::vector<TokenBias> bias = {{3, 1.0F}};
  TokenMask mask = TokenMask::all(200);
  mask.forbid(199);
  Workspace workspace;
  expect_noticed([&](const auto& head) { head.query(otherwise() ? other : good_, {.k = 4}); });
  expect_noticed([&](const auto& head) { head.query(good_, {.k = otherwise() ? 5U : 4U}); });
  expect_noticed([&](const auto& head) { head.query(good_, {.k = otherwise() ? 150U : 4U}); });
  expect_noticed([&](const auto& head) { head.query(good_, {.k = 4, .probabilities = otherwise()}); });
  expect_noticed([&](const auto& head) {
    if (otherwise()) {
      head.query(good_, {.k = 4, .logit_bias = bias});
    } else {
      head.query(good_, {.k = 4});
    }
  });
  expect_noticed([&](const auto& head) {
    if (otherwise()) {
      head.query(good_, {.k = 4, .allowed = mask});
    } else {
      head.query(good_, {.k = 4});
    }
  });
  expect_noticed([&](const auto& head) {
    if (otherwise()) {
      head.logits(good_, {}, workspace);
    } else {
      head.query(good_, {.k = 4});
    }
  });
  expect_noticed(
      [&](const auto& head) { head.query_batch(RowMajorMatrix::Ones(otherwise() ? 0 : 7, kDim)); });
}

/// Throws what a test wants in the middle of a query.
class Throwing final : public TopKSoftmax {
 public:
  Throwing(SoftmaxLayer layer, std::function<void()> fail)
      : TopKSoftmax(std::move(layer)), fail_(std::move(fail)) {}
  std::string_view name() const override { return "throwing"; }
  std::size_t index_bytes() const override { return 0; }

 private:
  void do_query(const Query&, Workspace&, TopK&) const override { fail_(); }
  std::function<void()> fail_;
};

TEST_F(OneRankAsksOtherwise, WhatABackendThrowsIsThrownByAll) {
  std::function<void()> fail;
  const auto head = sharded(layer_, spreads()[0], [&](SoftmaxLayer slice) {
    return std::make_unique<Throwing>(std::move(slice), [&] { fail(); });
  });
  fail = [&] {
    if (otherwise()) throw std::bad_alloc();
  };
  EXPECT_THROW(head->query(good_), std::bad_alloc);
  fail = [&] {
    if (otherwise()) throw std::runtime_error(std::string(2000, 'x'));
  };
  if (otherwise()) {
    EXPECT_THROW(head->query(good_), std::runtime_error);
  } else {
    EXPECT_EQ(error_of([&] { head->query(good_); }),
              "rank " + std::to_string(rank_count() - 1) + ": " + std::string(504, 'x'));
  }
  fail = [] {};
  EXPECT_EQ(head->query(good_).size(), 0U);
}

TEST_F(OneRankAsksOtherwise, IsNoticedWhereThresholdsAreSharedToo) {
  const RowMajorMatrix train = testing::random_matrix(60, kDim, 4);
  head_ = sharded(layer_, spreads()[0],
                  [&](SoftmaxLayer slice) { return Certified::build(std::move(slice), train); });
  Eigen::VectorXf bad = good_;
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  const QueryOptions ids_alone = {.k = 4, .probabilities = false};
  const auto expect_answer = [&] {
    EXPECT_EQ(head_->query(good_, ids_alone).ids, Fused::make(layer_)->query(good_, ids_alone).ids);
  };
  const auto ask = [&](const Eigen::VectorXf& h, const QueryOptions& options) {
    return refusal_of([&] { head_->query(h, options); });
  };
  EXPECT_NE(ask(otherwise() ? bad : good_, ids_alone).find("query: h[3] is NaN"), std::string::npos);
  expect_answer();
  EXPECT_NE(ask(otherwise() ? random_vector(kDim, 5) : good_, ids_alone).find("was asked something else"),
            std::string::npos);
  expect_answer();
  EXPECT_NE(ask(good_, {.k = 4, .probabilities = otherwise()}).find("was asked something else"),
            std::string::npos);
  expect_answer();
}

TEST(ShardedSoftmaxMaking, WhatOneRankThrowsIsThrownByAll) {
  const SoftmaxLayer layer = random_layer(40, kDim, 3);
  const bool last = this_rank() == rank_count() - 1;
  const std::string said = error_of([&] {
    sharded(layer, spreads()[0], [&](SoftmaxLayer slice) -> std::unique_ptr<TopKSoftmax> {
      if (last) throw Error("the disk is full");
      return Fused::make(std::move(slice));
    });
  });
  EXPECT_EQ(said, (last ? "" : "rank " + std::to_string(rank_count() - 1) + ": ") + "the disk is full");
}

/// The sentence that every rank gets for its slice [first, last) of `vocab` rows, all of which must get it.
std::string slices_refused(std::size_t first, std::size_t last, std::size_t vocab) {
  return error_of([&] {
    ShardedSoftmax::make(MPI_COMM_WORLD, {first, last, vocab}, [&] {
      return Fused::make(random_layer(static_cast<Eigen::Index>(last - first), kDim, 3));
    });
  });
}

TEST(ShardedSoftmaxMaking, WrongSlicesAreRefusedByAllRanksWithOneSentence) {
  const std::size_t rank = this_rank();
  const std::size_t ranks = rank_count();
  const auto [first, last, vocab] = even_slice(40, rank, ranks);
  EXPECT_EQ(slices_refused(first, last, 50), "sharded: the slices of all " + std::to_string(ranks) +
                                                 " ranks end at row 40 of 50; every row must be on a rank");
  EXPECT_EQ(slices_refused(0, 0, 0), "sharded: the slices of all " + std::to_string(ranks) +
                                         " ranks end at row 0 of 0; some rank must have rows");
  EXPECT_NE(slices_refused(3, 2, 40).find("sharded: there are no rows 3 to 2 of 40"), std::string::npos);
  EXPECT_NE(slices_refused(0, 41, 40).find("sharded: there are no rows 0 to 41 of 40"), std::string::npos);
  if (ranks == 1) return;
  EXPECT_EQ(slices_refused(0, 40, 40),
            "sharded: rank 1 has rows 0 to 40; it must begin at row 40, where the ranks before it end");
  const auto reversed = even_slice(40, ranks - 1 - rank, ranks);
  EXPECT_EQ(slices_refused(reversed.first, reversed.last, 40),
            "sharded: rank 0 has rows " + std::to_string(even_slice(40, ranks - 1, ranks).first) +
                " to 40; it must begin at row 0, where the ranks before it end");
  EXPECT_EQ(slices_refused(first, last, rank == 1 ? 41 : 40),
            "sharded: rank 1 has a slice of 41 rows, rank 0 of 40; all must be of one layer");
}

TEST(ShardedSoftmaxMaking, BackendsOfOtherLayersAreRefused) {
  const auto make = [](Eigen::Index vocab,
                       const std::function<std::unique_ptr<TopKSoftmax>(std::size_t)>& of) {
    const VocabularySlice slice = even_slice(static_cast<std::size_t>(vocab), this_rank(), rank_count());
    return error_of([&] { ShardedSoftmax::make(MPI_COMM_WORLD, slice, [&] { return of(slice.size()); }); });
  };
  const auto layer = [](std::size_t rows, Eigen::Index dim) {
    return random_layer(static_cast<Eigen::Index>(rows), dim, 3);
  };
  const std::string rank = this_rank() == 0 ? "" : "rank 0: ";
  EXPECT_EQ(
      make(40, [](std::size_t) { return nullptr; }).substr(rank_count() > 1 && this_rank() != 0 ? 0 : 0),
      "sharded: there is no backend for the rows of this rank");
  EXPECT_NE(make(40, [&](std::size_t rows) { return Fused::make(layer(rows + 1, 8)); })
                .find("sharded: the backend has "),
            std::string::npos);
  EXPECT_NE(make(40,
                 [&](std::size_t rows) {
                   std::vector<TokenId> ids(rows);
                   for (std::size_t i = 0; i < rows; ++i) ids[i] = static_cast<TokenId>(i);
                   return MappedVocabulary::wrap(Fused::make(layer(rows, 8)), ids, 60);
                 })
                .find("sharded: the ids of mapped:fused are not the numbers of its layer's rows"),
            std::string::npos);
  if (rank_count() == 1) return;
  const bool other = this_rank() == 1;
  const std::string end = "; all must have slices of one layer, and the same backend";
  EXPECT_EQ(make(40, [&](std::size_t rows) { return Fused::make(layer(rows, other ? 9 : 8)); }),
            "sharded: rank 1 has the dimension 9, rank 0 has the dimension 8" + end);
  EXPECT_EQ(make(40,
                 [&](std::size_t rows) {
                   return Fused::make(layer(rows, 8).with({.soft_cap = other ? 5.0F : 0.0F}));
                 }),
            "sharded: rank 1 has the soft cap 5, rank 0 has the soft cap 0" + end);
  EXPECT_EQ(make(40,
                 [&](std::size_t rows) -> std::unique_ptr<TopKSoftmax> {
                   if (other) return Certified::build(layer(rows, 8));
                   return Fused::make(layer(rows, 8));
                 }),
            "sharded: rank 1 has the backend certified, rank 0 has the backend fused" + end);
}

TEST(ShardedSoftmaxMaking, NothingIsBuiltAroundSlices) {
  const SoftmaxLayer layer = random_layer(40, kDim, 3);
  const std::shared_ptr<const TopKSoftmax> head = sharded(layer, spreads()[3], &Fused::make);
  std::vector<TokenId> ids(40);
  for (std::size_t i = 0; i < 40; ++i) ids[i] = static_cast<TokenId>(i);
  EXPECT_EQ(
      error_of([&] { MappedVocabulary::wrap(head, ids, 60); }),
      "mapped: sharded:fused answers together with other processes; map ids around it, where it is asked");
  EXPECT_EQ(
      error_of([&] { Certify::wrap(head, Contexts::none(kDim)); }),
      "certify: sharded:fused answers together with other processes; wrap the backend that each of them has");
}

}  // namespace
}  // namespace topksoftmax
