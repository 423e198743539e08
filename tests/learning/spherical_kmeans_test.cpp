// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/learning/spherical_kmeans.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support/layers.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using testing::random_matrix;

double mean_similarity(const RowMajorMatrix& H, const std::vector<float>& v, std::size_t clusters) {
  const Eigen::Map<const RowMajorMatrix> V(v.data(), static_cast<Eigen::Index>(clusters), H.cols());
  const RowMajorMatrix products = H.rowwise().normalized() * V.transpose();
  return static_cast<double>(products.rowwise().maxCoeff().mean());
}

TEST(SphericalKMeans, FindsTheTopicsThatAreThere) {
  RowMajorMatrix H = random_matrix(600, 16, 1, 0.1F);
  for (Eigen::Index i = 0; i < 600; ++i)
    H(i, i % 6) += static_cast<float>(1 + i % 7);  // six axes, many lengths
  const std::vector<float> v = spherical_kmeans(Contexts::of(H), {.clusters = 6});
  const std::vector<std::int32_t> cluster = assign_clusters(Contexts::of(H), v, 6);
  std::set<std::int32_t> used;
  for (std::size_t i = 0; i < 600; ++i) {
    EXPECT_EQ(cluster[i], cluster[i % 6]) << "contexts of one topic stay together";
    used.insert(cluster[i]);
  }
  EXPECT_EQ(used.size(), 6U);
}

TEST(SphericalKMeans, VectorsAreUnitAndMoreIterationsFitBetter) {
  const RowMajorMatrix H = random_matrix(2000, 12, 3);
  const std::vector<float> one = spherical_kmeans(Contexts::of(H), {.clusters = 10, .iterations = 1});
  const std::vector<float> many = spherical_kmeans(Contexts::of(H), {.clusters = 10, .iterations = 15});
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_NEAR(Eigen::Map<const Eigen::VectorXf>(many.data() + t * 12, 12).norm(), 1.0F, 1e-5F);
  }
  EXPECT_GT(mean_similarity(H, many, 10), mean_similarity(H, one, 10));
}

TEST(SphericalKMeans, IsTheSameForASeedWhateverTheThreads) {
  const RowMajorMatrix H = random_matrix(3000, 12, 3);
  const std::vector<float> serial = spherical_kmeans(Contexts::of(H), {.clusters = 10}, SerialExecutor());
  const std::vector<float> parallel = spherical_kmeans(Contexts::of(H), {.clusters = 10}, ThreadPool(3));
  EXPECT_EQ(serial, parallel);
  EXPECT_NE(serial, spherical_kmeans(Contexts::of(H), {.clusters = 10, .seed = 2}));
}

TEST(SphericalKMeans, FewZeroAndEqualContextsWork) {
  const RowMajorMatrix few = random_matrix(3, 5, 1);
  EXPECT_EQ(spherical_kmeans(Contexts::of(few), {.clusters = 8}).size(), 40U);
  const RowMajorMatrix equal = random_matrix(1, 5, 1).replicate(50, 1);
  const RowMajorMatrix zero = RowMajorMatrix::Zero(50, 5);
  for (const RowMajorMatrix& H : {equal, zero}) {
    for (const float x : spherical_kmeans(Contexts::of(H), {.clusters = 4})) EXPECT_TRUE(std::isfinite(x));
  }
  EXPECT_THROW(spherical_kmeans(Contexts::of(RowMajorMatrix(0, 5)), {.clusters = 4}), Error);
  EXPECT_THROW(spherical_kmeans(Contexts::of(few), {.clusters = 0}), Error);
}

}  // namespace
}  // namespace topksoftmax
