// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/sharded_index.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "distributed/ranks.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/distributed/sharded_head_file.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/quantized/build.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;
using testing::rank_count;
using testing::sharded;
using testing::Spread;
using testing::spreads;
using testing::this_rank;

constexpr Eigen::Index kDim = 24;

/// A folder that all ranks see, removed by the one that made it when all are done with it.
class SharedFolder {
 public:
  SharedFolder() {
    char path[1024] = {};
    if (this_rank() == 0) {
      own_ = std::make_unique<testing::TemporaryFolder>();
      own_->path().string().copy(path, sizeof(path) - 1);
    }
    MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = path;
  }
  ~SharedFolder() { MPI_Barrier(MPI_COMM_WORLD); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::unique_ptr<testing::TemporaryFolder> own_;
  std::filesystem::path path_;
};

/// Where what one rank alone throws begins on this one.
std::string told_by(std::size_t rank) {
  return this_rank() == rank ? "" : "rank " + std::to_string(rank) + ": ";
}

class ShardedIndex : public ::testing::Test {
 protected:
  std::unique_ptr<ShardedSoftmax> build(const SoftmaxLayer& layer, const Spread& spread) const {
    return sharded(layer, spread,
                   [this](SoftmaxLayer slice) { return Certified::build(std::move(slice), train_); });
  }

  std::unique_ptr<ShardedSoftmax> load(const SoftmaxLayer& layer, const VocabularySlice& slice,
                                       const std::string& name = "index") const {
    return load_sharded_index(
        MPI_COMM_WORLD, folder_ / name, slice, [&] { return slice_of(layer, slice); }, standard_loader());
  }

  SharedFolder folder_;
  SoftmaxLayer layer_ = random_layer(900, kDim, 4);
  RowMajorMatrix train_ = clustered_contexts(300, kDim, 12, 2);
};

TEST_F(ShardedIndex, AnswersAsBeforeBitForBit) {
  for (const Spread& spread : spreads()) {
    SCOPED_TRACE(spread.name);
    const auto head = build(layer_, spread);
    save_sharded_index(*head, folder_ / "index");
    const auto loaded = load(layer_, spread.slice(900));
    for (Eigen::Index i = 0; i < 5; ++i) {
      const Eigen::VectorXf h = train_.row(i * 9);
      testing::expect_same(loaded->query(h, {.k = 5}), head->query(h, {.k = 5}));
    }
    EXPECT_EQ(loaded->name(), head->name());
    EXPECT_EQ(loaded->layer_hash(), head->layer_hash());
  }
}

TEST_F(ShardedIndex, HoldsTheEffortOfQueriesThatNameNone) {
  for (const Spread& spread : spreads()) {
    SCOPED_TRACE(spread.name);
    const auto head = sharded(layer_, spread, [](SoftmaxLayer slice) {
      return Quantized::build(std::move(slice), {.refine_width = 20});
    });
    head->set_usual_effort(40);
    save_sharded_index(*head, folder_ / "index");
    const auto loaded = load(layer_, spread.slice(900));
    const Eigen::VectorXf h = train_.row(0);
    testing::expect_same(loaded->query(h, {.k = 5}), head->query(h, {.k = 5, .effort = 40}));
    EXPECT_EQ(loaded->query(h, {.k = 5}).work.candidates, head->query(h, {.k = 5}).work.candidates);
  }
}

TEST_F(ShardedIndex, TheHashOfTheLayerIsThatOfOneProcess) {
  const std::uint64_t whole = sum_of_row_hashes(layer_, 0);
  for (const Spread& spread : spreads()) {
    EXPECT_EQ(sharded(layer_, spread, &Fused::make)->layer_hash(), whole) << spread.name;
  }
}

TEST_F(ShardedIndex, OfOtherSlicesIsRefusedByAllRanks) {
  if (rank_count() == 1) GTEST_SKIP() << "there is one slice";
  save_sharded_index(*build(layer_, spreads()[0]), folder_ / "index");
  // The rows of rank 0 and rank 1 meet elsewhere.
  VocabularySlice slice = even_slice(900, this_rank(), rank_count());
  if (this_rank() == 0) slice.last -= 10;
  if (this_rank() == 1) slice.first -= 10;
  const std::string said = error_of([&] { load(layer_, slice); });
  const std::string file = shard_path(folder_ / "index", this_rank() == 1 ? 1 : 0, rank_count()).string();
  EXPECT_EQ(said.find((this_rank() < 2 ? "" : "rank 0: ") + file), 0U) << said;
  EXPECT_NE(said.find("was built for another layer: its vocab is"), std::string::npos) << said;
}

TEST_F(ShardedIndex, InAnotherOrderIsRefusedByAllRanks) {
  if (rank_count() == 1) GTEST_SKIP() << "there is one slice";
  // Rows that are alike on all ranks: the slices differ by where they are alone.
  const auto size = static_cast<Eigen::Index>(rank_count()) * 30;
  RowMajorMatrix W(size, kDim);
  for (Eigen::Index i = 0; i < size; ++i) W.row(i) = layer_.weights().row(i % 30);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  save_sharded_index(*build(layer, spreads()[0]), folder_ / "index");
  const auto file = [&](std::size_t rank) { return shard_path(folder_ / "index", rank, rank_count()); };
  MPI_Barrier(MPI_COMM_WORLD);
  if (this_rank() == 0) {
    std::filesystem::rename(file(0), folder_ / "other");
    std::filesystem::rename(file(1), file(0));
    std::filesystem::rename(folder_ / "other", file(1));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const std::string said =
      error_of([&] { load(layer, even_slice(layer.vocab(), this_rank(), rank_count())); });
  const std::string rows = " of " + std::to_string(size);
  const std::size_t first = this_rank() == 1 ? 0 : 30;
  EXPECT_NE(said.find(": is of rows " + std::to_string(first) + " to " + std::to_string(first + 30) + rows +
                      ", this rank has rows " + std::to_string(30 - first) + " to " +
                      std::to_string(60 - first) + rows + "; load it with as many ranks"),
            std::string::npos)
      << said;
}

TEST_F(ShardedIndex, OfALayerWithOtherRowsElsewhereIsRefusedByAllRanks) {
  save_sharded_index(*build(layer_, spreads()[0]), folder_ / "index");
  RowMajorMatrix W = layer_.weights();
  W(899, 3) += 1.0F;  // a row of the last rank's
  const SoftmaxLayer other = SoftmaxLayer::own(W, layer_.biases());
  const VocabularySlice slice = even_slice(900, this_rank(), rank_count());
  const std::string said = error_of([&] { load(other, slice); });
  EXPECT_NE(said.find("was built for another layer"), std::string::npos) << said;
  // Where the last rank's index is of the new rows, the others' are not.
  const auto rebuilt = build(other, spreads()[0]);
  save_sharded_index(*rebuilt, folder_ / "new");
  const auto file = [&](const std::string& name) {
    return shard_path(folder_ / name, this_rank(), rank_count());
  };
  if (this_rank() + 1 < rank_count()) std::filesystem::rename(file("index"), file("new"));
  const std::string mixed = error_of([&] { load(other, slice, "new"); });
  if (rank_count() == 1) {
    EXPECT_EQ(mixed, "");
  } else {
    EXPECT_NE(mixed.find("was built for another layer, which has other rows on other ranks"),
              std::string::npos)
        << mixed;
  }
}

TEST_F(ShardedIndex, ThatIsMissingOrOfAnotherCountIsRefusedByAllRanks) {
  save_sharded_index(*build(layer_, spreads()[0]), folder_ / "index");
  MPI_Barrier(MPI_COMM_WORLD);
  const std::size_t last = rank_count() - 1;
  if (this_rank() == last) std::filesystem::remove(shard_path(folder_ / "index", last, rank_count()));
  const VocabularySlice slice = even_slice(900, this_rank(), rank_count());
  const std::string said = error_of([&] { load(layer_, slice); });
  EXPECT_EQ(said.find(told_by(last)), 0U) << said;
  EXPECT_NE(said.find("-of-0000" + std::to_string(rank_count())), std::string::npos) << said;
  EXPECT_NE(said.find("No such file"), std::string::npos) << said;
}

TEST_F(ShardedIndex, ThatOneRankCannotWriteIsAnErrorOnAll) {
  const auto head = build(layer_, spreads()[0]);
  const std::string said = error_of(
      [&] { save_sharded_index(*head, this_rank() == 0 ? folder_ / "no/index" : folder_ / "index"); });
  EXPECT_EQ(said.find(told_by(0)), 0U) << said;
  EXPECT_NE(said.find("No such file"), std::string::npos) << said;
  const Eigen::VectorXf h = train_.row(0);
  EXPECT_EQ(head->query(h, {.k = 5}).ids, Fused::make(layer_)->query(h, {.k = 5}).ids) << "it remains usable";
}

TEST_F(ShardedIndex, AnIndexOfOneProcessIsNoneOfASlice) {
  if (this_rank() == 0) save_index(*Fused::make(layer_), shard_path(folder_ / "index", 0, rank_count()));
  const VocabularySlice slice = spreads()[3].slice(900);
  const std::string said = error_of([&] { load(layer_, slice); });
  EXPECT_NE(said.find("holds an index of kind \"fused\", expected \"sharded\""), std::string::npos) << said;
}

TEST_F(ShardedIndex, AHeadFileIsSharedByAllRanks) {
  const RowMajorMatrix W = layer_.weights();
  const Eigen::VectorXf b = layer_.biases();
  if (this_rank() == 0) {
    const TensorView tensors[] = {tensor_view("weight", {900, kDim}, testing::values(W)),
                                  tensor_view("bias", {900}, std::span(b.data(), 900))};
    write_safetensors(folder_ / "head.safetensors", tensors, {{"soft_cap", "7.5"}});
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const auto head = shard_head_file(MPI_COMM_WORLD, folder_ / "head.safetensors",
                                    [](const HeadFile& file, SoftmaxLayer slice) {
                                      EXPECT_EQ(file.vocab(), 900U);
                                      return Fused::make(std::move(slice));
                                    });
  EXPECT_EQ(head->slice(), even_slice(900, this_rank(), rank_count()));
  const auto whole = Fused::make(layer_.with({.soft_cap = 7.5F}));
  for (Eigen::Index i = 0; i < 5; ++i) {
    const Eigen::VectorXf h = train_.row(i);
    testing::expect_same(head->query(h, {.k = 5}), whole->query(h, {.k = 5}));
  }
  const std::filesystem::path path = this_rank() == 0 ? folder_ / "none" : folder_ / "head.safetensors";
  const std::string said = error_of([&] {
    shard_head_file(MPI_COMM_WORLD, path,
                    [](const HeadFile&, SoftmaxLayer slice) { return Fused::make(std::move(slice)); });
  });
  EXPECT_EQ(said.find(told_by(0) + (folder_ / "none").string()), 0U) << said;
}

}  // namespace
}  // namespace topksoftmax
