// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "support/layers.hpp"
#include "support/saved_index.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax {
namespace {

using detail::kBoundTerms;
using detail::kOfCodes;
using testing::Parts;
using testing::TemporaryFolder;
using testing::world;

/// The same index as it was stored when boxes had the prefixes' coordinates and weights, and weights no term
/// of codes: of tails that was what is longer.
std::string as_before(const Certified& head) {
  Parts parts(testing::saved(head));
  std::array<std::array<double, kBoundTerms>, 3> weights{};
  std::memcpy(weights.data(), parts.bytes.at("bound_weights").data(), sizeof(weights));
  std::array<std::array<double, kOfCodes>, 2> before{};
  for (std::size_t of : {0U, 1U}) {
    for (std::size_t term = 0; term < kOfCodes; ++term) before[of][term] = weights[of + 1][term];
  }
  before[1][detail::kLonger] = weights[2][kOfCodes];
  parts.tensors["weights"] = parts.tensors.at("bound_weights");
  parts.tensors["weights"].shape = {2, kOfCodes};
  parts.bytes["weights"].assign(reinterpret_cast<const char*>(before.data()), sizeof(before));
  parts.tensors.erase("bound_weights");
  parts.bytes.erase("bound_weights");
  for (const char* const name : {"rows.covariance", "rows.mean", "rows.sizes", "rows.spreads",
                                 "rows.bias_covariance", "rows.numbers"}) {
    parts.tensors.erase(name);
    parts.bytes.erase(name);
  }
  parts.metadata.erase("options.box_width");
  parts.metadata.erase("checksum");
  return parts.file();
}

TEST(CertifiedIndex, OfBeforeIsReadAsItWas) {
  for (const CertifiedOptions& options :
       {CertifiedOptions{.prefix = 8, .width = 16, .boxes = BoundBoxes::never},
        CertifiedOptions{.prefix = 8, .width = 16, .boxes = BoundBoxes::always, .box_width = 8}}) {
    const std::unique_ptr<Certified> head = Certified::build(world().layer, world().train, options);
    const TemporaryFolder folder(testing::memory_folder());
    const auto path = folder.write("before", as_before(*head));
    const std::unique_ptr<Certified> before = load_index<Certified>(path, world().layer);
    EXPECT_TRUE(head->index_bytes() > before->index_bytes()) << "the covariance is new";
    for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
      const TopK now = head->query(world().test.row(i), {.k = 3});
      const TopK then = before->query(world().test.row(i), {.k = 3});
      EXPECT_EQ(then.ids, now.ids);
      EXPECT_EQ(then.log_z_low, now.log_z_low);
      EXPECT_EQ(then.log_z_high, now.log_z_high);
      EXPECT_EQ(then.work.screened, now.work.screened);
      EXPECT_TRUE(then.certified);
    }
  }
}

/// A head of which rows have codes, and its index as it was stored when these had no weights of what lies
/// beyond them.
struct CodesOfBefore {
  explicit CodesOfBefore(const CertifiedOptions& options)
      : layer(testing::random_layer(700, 80, 1)),
        head(Certified::build(layer, testing::random_matrix(300, 80, 2), options)) {
    Parts parts(testing::saved(*head));
    parts.tensors["code_weights"].shape = {3};
    parts.bytes["code_weights"].resize(3 * sizeof(double));
    parts.metadata.erase("checksum");
    file = parts.file();
  }

  SoftmaxLayer layer;
  std::unique_ptr<Certified> head;
  std::string file;
};

TEST(CertifiedIndex, CodesOfBeforeAreReadAsTheyWere) {
  const CodesOfBefore made({.prefix = 8, .int4_width = 64});
  const TemporaryFolder folder(testing::memory_folder());
  const auto before = load_index<Certified>(folder.write("before", made.file), made.layer);
  const RowMajorMatrix contexts = testing::random_matrix(20, 80, 3);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const TopK now = made.head->query(contexts.row(i), {.k = 3});
    const TopK then = before->query(contexts.row(i), {.k = 3});
    EXPECT_EQ(then.ids, now.ids);
    EXPECT_EQ(then.logits, now.logits);
    EXPECT_NEAR(then.log_z_high, now.log_z_high, 1e-4);
    EXPECT_TRUE(then.certified);
  }
}

TEST(CertifiedIndex, DitheredCodesOfBeforeAreToBeBuiltAgain) {
  const CodesOfBefore made({.prefix = 8, .int4_width = 32, .int2_width = 32, .failure_probability = 1e-9});
  EXPECT_THAT(testing::refusal(made.file, made.layer, standard_loader()),
              ::testing::HasSubstr("build the index again"));
}

TEST(CertifiedIndex, HasNoCodesOfCoordinatesThatContextsLack) {
  const CodesOfBefore made({.prefix = 8, .int4_width = 64});
  Parts parts(made.file);
  parts.metadata["options.width"] = "128";
  parts.metadata["options.int4_width"] = "96";
  EXPECT_THAT(testing::refusal(parts.file(), made.layer, standard_loader()),
              ::testing::HasSubstr("codes of more coordinates than contexts have"));
}

TEST(CertifiedIndex, HasNoFailureProbabilityThatNoneIs) {
  const SoftmaxLayer layer = testing::random_layer(300, 80, 1);
  const auto head = Certified::build(layer, RowMajorMatrix(0, 80),
                                     {.prefix = 8, .int4_width = 64, .failure_probability = 1e-9});
  Parts parts(testing::saved(*head));
  parts.metadata.erase("checksum");
  for (const char* const wrong : {"3", "0.02", "-1e-9"}) {
    parts.metadata["options.failure_probability"] = wrong;
    EXPECT_THAT(testing::refusal(parts.file(), layer, standard_loader()),
                ::testing::HasSubstr("failure_probability is "))
        << wrong;
  }
}

TEST(CertifiedIndex, CodesHaveNoOtherNumberOfWeights) {
  const CodesOfBefore made({.prefix = 8, .int4_width = 64});
  Parts parts(made.file);
  parts.shorten("code_weights");
  EXPECT_THAT(testing::refusal(parts.file(), made.layer, standard_loader()),
              ::testing::HasSubstr("2 weights in place of 5"));
}

TEST(CertifiedIndex, OfTheLayersOwnCoordinatesSaysSo) {
  const SoftmaxLayer layer = testing::random_layer(200, 64, 1);
  const auto head = Certified::build(layer, testing::random_matrix(300, 64, 2));
  Parts parts(testing::saved(*head));
  EXPECT_EQ(parts.metadata.at("options.identity"), "1");
  const TemporaryFolder folder(testing::memory_folder());
  const auto loaded = load_index<Certified>(folder.write("own", parts.file()), layer);
  const RowMajorMatrix contexts = testing::random_matrix(20, 64, 3);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const TopK now = head->query(contexts.row(i), {.k = 3});
    const TopK then = loaded->query(contexts.row(i), {.k = 3});
    EXPECT_EQ(then.ids, now.ids);
    EXPECT_EQ(then.log_z_low, now.log_z_low);
    EXPECT_EQ(then.work.candidates, now.work.candidates);
    EXPECT_TRUE(then.certified);
  }
  // A file that has merely lost its transform is not one of these.
  parts.metadata.erase("options.identity");
  parts.metadata.erase("checksum");
  EXPECT_THAT(testing::refusal(parts.file(), layer, standard_loader()), ::testing::HasSubstr("RQ"));
}

TEST(CertifiedIndex, OfRowsBeyondWhatSquaresHoldIsLoaded) {
  RowMajorMatrix W = testing::random_matrix(200, 64, 3);
  W.row(17) *= 1e20F;
  const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W));
  const auto head = Certified::build(layer, RowMajorMatrix(0, 64));
  const TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.write("large", testing::saved(*head));
  const auto loaded = load_index<Certified>(path, layer);
  const Eigen::VectorXf h = testing::random_vector(64, 5);
  EXPECT_EQ(loaded->query(h, {.k = 5}).ids, head->query(h, {.k = 5}).ids);
}

}  // namespace
}  // namespace topksoftmax
