// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/vocabulary_slice.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/io/row_hashes.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::random_layer;

TEST(VocabularySlice, EvenOnesFollowEachOtherAndDifferByOneRowAtMost) {
  for (const std::size_t vocab : {1U, 2U, 7U, 100U, 262144U}) {
    for (const std::size_t ranks : {1U, 2U, 3U, 8U, 1000U}) {
      std::size_t end = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const VocabularySlice slice = even_slice(vocab, rank, ranks);
        EXPECT_EQ(slice.first, end);
        EXPECT_GE(slice.size(), vocab / ranks);
        EXPECT_LE(slice.size(), (vocab + ranks - 1) / ranks);
        EXPECT_EQ(slice.empty(), slice.size() == 0);
        end = slice.last;
      }
      EXPECT_EQ(end, vocab);
    }
  }
}

TEST(VocabularySlice, IsALayerThatSharesTheWeights) {
  const SoftmaxLayer whole = random_layer(20, 6, 1).with({.soft_cap = 4.0F});
  const SoftmaxLayer slice = slice_of(whole, {5, 12, 20});
  EXPECT_EQ(slice.vocab(), 7U);
  EXPECT_EQ(slice.rows().data, whole.rows().row(5));
  EXPECT_EQ(slice.weights(), whole.weights().middleRows(5, 7));
  EXPECT_EQ(slice.biases(), whole.biases().segment(5, 7));
  EXPECT_EQ(slice.transform().soft_cap, 4.0F);
  for (const VocabularySlice& other : {VocabularySlice{5, 5, 20}, {5, 21, 20}, {5, 12, 21}, {12, 5, 20}}) {
    EXPECT_NE(error_of([&] { slice_of(whole, other); }).find("are not a slice of a layer of 20 rows"),
              std::string::npos);
  }
}

TEST(VocabularySlice, HashesOfSlicesAddUpToThatOfTheLayer) {
  const SoftmaxLayer layer = random_layer(50, 6, 1);
  const std::uint64_t whole = sum_of_row_hashes(layer, 0);
  for (const std::size_t ranks : {1U, 2U, 7U, 50U}) {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const VocabularySlice slice = even_slice(50, rank, ranks);
      sum += sum_of_row_hashes(slice_of(layer, slice), slice.first);
    }
    EXPECT_EQ(sum, whole);
  }
  RowMajorMatrix W = layer.weights();
  const Eigen::VectorXf b = layer.biases();
  W.row(3).swap(W.row(30));
  EXPECT_NE(sum_of_row_hashes(SoftmaxLayer::own(W, b), 0), whole) << "rows in another order";
  EXPECT_NE(sum_of_row_hashes(SoftmaxLayer::own(layer.weights()), 0), whole) << "without biases";
  EXPECT_NE(sum_of_row_hashes(layer, 1), whole);
}

}  // namespace
}  // namespace topksoftmax
