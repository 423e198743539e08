// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/kernels/implementation.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/weight_blocks.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {
namespace {

using kernels::LogitEdits;
using kernels::LogSumExp;
using kernels::Rows;
using kernels::TopKHeap;
using kernels::detail::Implementation;
using testing::Reference;

struct Size {
  Eigen::Index vocab;
  Eigen::Index dim;
};

/// A layer in each stored type, over memory of its own whose start and stride are deliberately awkward.
class StoredLayer {
 public:
  StoredLayer(WeightType type, Size size, unsigned seed) {
    const auto vocab = static_cast<std::size_t>(size.vocab);
    const auto dim = static_cast<std::size_t>(size.dim);
    const std::size_t stride = dim + 3;
    const RowMajorMatrix W = testing::random_matrix(size.vocab, size.dim, seed, 0.5F);
    bias_ = testing::random_vector(size.vocab, seed + 1);
    const std::size_t weight = weight_block(type).bytes;
    bytes_.resize(vocab * stride * weight + 64);
    std::byte* const start = bytes_.data() + weight;  // never on a vector's boundary
    for (std::size_t i = 0; i < vocab; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        std::byte* const p = start + (i * stride + j) * weight;
        put(type, W(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)), p);
      }
    }
    Rows rows;
    rows.data = start;
    rows.type = type;
    rows.bias = bias_.data();
    rows.count = vocab;
    rows.dim = dim;
    rows.stride = stride;
    if (type == WeightType::int8) {
      scales_ = testing::random_vector(size.vocab, seed + 2, 0.01F);
      rows.scales = scales_.data();
    }
    layer_ = std::make_unique<SoftmaxLayer>(SoftmaxLayer::borrow(rows, bias_.size()));
  }

  const SoftmaxLayer& layer() const { return *layer_; }

 private:
  static void put(WeightType type, float value, std::byte* p) {
    switch (type) {
      case WeightType::float32:
        return copy(value, p);
      case WeightType::float16:
        return copy(Eigen::half(value), p);
      case WeightType::bfloat16:
        return copy(Eigen::bfloat16(value), p);
      case WeightType::int8:
        return copy(
            static_cast<std::int8_t>(std::lround(std::fmin(std::fmax(value * 60.0F, -128.0F), 127.0F))), p);
      default:
        throw std::logic_error("blocks are not written weight by weight");
    }
  }
  template <class T>
  static void copy(T value, std::byte* p) {
    std::memcpy(p, &value, sizeof(T));
  }

  std::vector<std::byte> bytes_;
  Eigen::VectorXf bias_;
  Eigen::VectorXf scales_;
  std::unique_ptr<SoftmaxLayer> layer_;
};

class Kernels : public ::testing::TestWithParam<Implementation> {
 protected:
  const Implementation& kernel() const { return GetParam(); }

  std::vector<float> scan(const Rows& rows, const Eigen::VectorXf& h) const {
    std::vector<float> logits(rows.count);
    kernel().scan(rows, 0, rows.count, h.data(), logits.data());
    return logits;
  }
};

constexpr WeightType kTypes[] = {WeightType::float32, WeightType::float16, WeightType::bfloat16,
                                 WeightType::int8};

TEST_P(Kernels, ScanAgreesWithTheReferenceForEveryStoredType) {
  for (const Size size :
       {Size{1, 1}, Size{2, 7}, Size{3, 16}, Size{100, 200}, Size{37, 1500}, Size{17, 33}}) {
    for (const WeightType type : kTypes) {
      const StoredLayer stored(type, size, 11);
      const Eigen::VectorXf h = testing::random_vector(size.dim, 5);
      const Reference reference(stored.layer(), h);
      const std::vector<float> logits = scan(stored.layer().rows(), h);
      for (std::size_t token = 0; token < logits.size(); ++token) {
        ASSERT_NEAR(logits[token], reference.logits[token],
                    reference.tolerance(token, static_cast<std::size_t>(size.dim)))
            << "type " << static_cast<int>(type) << ", V = " << size.vocab << ", d = " << size.dim;
      }
    }
  }
}

TEST_P(Kernels, CombineRowsAddsWeightedRowsOfEveryStoredType) {
  for (const Size size : {Size{1, 16}, Size{2, 32}, Size{7, 48}, Size{100, 64}, Size{33, 80}, Size{20, 96},
                          Size{16, 112}, Size{5, 256}}) {
    for (const WeightType type : kTypes) {
      const StoredLayer stored(type, size, 12);
      Rows rows = stored.layer().rows();
      rows.bias = rows.scales = nullptr;
      const Eigen::VectorXf x = testing::random_vector(size.vocab, 5);
      std::vector<float> sums(rows.dim);
      kernel().combine_rows(rows, x.data(), sums.data());
      Eigen::MatrixXd W = stored.layer().weights().cast<double>();
      if (type == WeightType::int8) {
        for (Eigen::Index i = 0; i < W.rows(); ++i) {
          W.row(i) /= static_cast<double>(stored.layer().rows().scales[i]);
        }
      }
      const Eigen::VectorXd expected = W.transpose() * x.cast<double>();
      const Eigen::VectorXd sizes = W.cwiseAbs().transpose() * x.cwiseAbs().cast<double>();
      for (Eigen::Index j = 0; j < size.dim; ++j) {
        // The reference's int8 weights are rounded once themselves.
        const double share = static_cast<double>(size.vocab + (type == WeightType::int8 ? 3 : 1));
        ASSERT_NEAR(sums[static_cast<std::size_t>(j)], expected[j], share * 0x1p-24 * sizes[j] + 1e-30)
            << "type " << static_cast<int>(type) << ", V = " << size.vocab << ", d = " << size.dim;
      }
    }
  }
}

TEST_P(Kernels, EveryKernelGivesARowTheSameBits) {
  for (const Size size :
       {Size{1, 1}, Size{2, 7}, Size{67, 16}, Size{131, 200}, Size{64, 65}, Size{10007, 24}}) {
    for (const WeightType type : kTypes) {
      const StoredLayer stored(type, size, 3);
      const Rows& rows = stored.layer().rows();
      const RowMajorMatrix H = testing::random_matrix(5, size.dim, 8);
      for (Eigen::Index q = 0; q < H.rows(); ++q) {
        const Eigen::VectorXf h = H.row(q);
        const std::vector<float> logits = scan(rows, h);

        std::vector<TokenId> ids;
        for (std::size_t i = rows.count; i-- > 0;) ids.push_back(static_cast<TokenId>(i));
        std::vector<float> gathered(ids.size());
        kernel().scan_gathered(rows, ids.data(), ids.size(), h.data(), gathered.data());
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(gathered[i], logits[static_cast<std::size_t>(ids[i])]);
        }

        std::vector<ScoredToken> storage(rows.count);
        TopKHeap heap(storage.data(), storage.size());
        kernel().fused_scan(rows, h.data(), {}, heap, nullptr);
        for (const ScoredToken& token : heap.sort()) {
          ASSERT_EQ(token.logit, logits[static_cast<std::size_t>(token.id)]);
        }
      }
      std::vector<TokenId> ids;
      for (std::size_t i = rows.count; i-- > 0;) ids.push_back(static_cast<TokenId>(i * 7 % rows.count));
      std::vector<float> gathered(5 * ids.size());
      kernel().scan_gathered_batch(rows, ids.data(), ids.size(), H.data(),
                                   static_cast<std::size_t>(H.outerStride()), 5, gathered.data());
      std::vector<float> scanned(5 * rows.count);
      for (std::size_t first = 0; first < rows.count; first += 19) {  // parts that end anywhere
        kernel().scan_batch(rows.part(first, std::min<std::size_t>(19, rows.count - first)), H.data(),
                            static_cast<std::size_t>(H.outerStride()), 5, scanned.data() + first, rows.count);
      }
      for (std::size_t q = 0; q < 5; ++q) {
        const std::vector<float> logits = scan(rows, H.row(static_cast<Eigen::Index>(q)));
        for (std::size_t i = 0; i < rows.count; ++i) ASSERT_EQ(scanned[q * rows.count + i], logits[i]);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(gathered[q * ids.size() + i], logits[static_cast<std::size_t>(ids[i])]);
        }
      }
      std::vector<ScoredToken> storage(5 * rows.count);
      std::vector<TopKHeap> heaps;
      for (std::size_t q = 0; q < 5; ++q) heaps.emplace_back(storage.data() + q * rows.count, rows.count);
      kernel().fused_scan_batch(rows, H.data(), static_cast<std::size_t>(H.outerStride()), 5,
                                std::vector<LogitEdits>(5).data(), heaps.data(), nullptr);
      for (std::size_t q = 0; q < 5; ++q) {
        const std::vector<float> logits = scan(rows, H.row(static_cast<Eigen::Index>(q)));
        ASSERT_EQ(heaps[q].size(), rows.count);
        for (const ScoredToken& token : heaps[q].sort()) {
          ASSERT_EQ(token.logit, logits[static_cast<std::size_t>(token.id)]);
        }
      }
    }
  }
}

TEST_P(Kernels, RowsOfBlocksGiveTheBitsOfTheirWeightsInFloat32) {
  for (const WeightType type : {WeightType::q8_0, WeightType::q6_k, WeightType::q4_k}) {
    for (const Size size : {Size{1, 256}, Size{67, 512}, Size{130, 768}}) {
      const SoftmaxLayer blocks = testing::random_block_layer(type, size.vocab, size.dim, 4);
      const SoftmaxLayer floats = SoftmaxLayer::own(blocks.weights(), blocks.biases());
      const RowMajorMatrix H = testing::random_matrix(5, size.dim, 8);
      const std::size_t count = blocks.vocab();
      std::vector<TokenId> ids;
      for (std::size_t i = count; i-- > 0;) ids.push_back(static_cast<TokenId>(i * 7 % count));
      const auto scans = [&](const Rows& rows, std::vector<float>& all) {
        const auto dim = static_cast<std::size_t>(size.dim);
        all.resize(11 * count);
        kernel().scan(rows, 0, count, H.data(), all.data());
        kernel().scan_gathered_batch(rows, ids.data(), count, H.data(), dim, 5, all.data() + count);
        kernel().scan_batch(rows, H.data(), dim, 5, all.data() + 6 * count, count);
      };
      std::vector<float> of_blocks;
      std::vector<float> of_floats;
      scans(blocks.rows(), of_blocks);
      scans(floats.rows(), of_floats);
      EXPECT_EQ(of_blocks, of_floats) << weight_type_name(type) << ", d = " << size.dim;
      for (Eigen::Index q = 0; q < H.rows(); ++q) {
        const Eigen::VectorXf h = H.row(q);
        const auto best = [&](const Rows& rows) {
          std::vector<ScoredToken> storage(count);
          TopKHeap heap(storage.data(), storage.size());
          LogSumExp sum;
          kernel().fused_scan(rows, h.data(), {}, heap, &sum);
          std::vector<float> logits = {static_cast<float>(sum.value())};
          for (const ScoredToken& token : heap.sort()) logits.push_back(token.logit);
          return logits;
        };
        EXPECT_EQ(best(blocks.rows()), best(floats.rows()));
      }
    }
  }
}

TEST_P(Kernels, BatchAndSingleContextsGiveTheSameLogZ) {
  const SoftmaxLayer layer = testing::random_layer(1003, 50, 21);
  const RowMajorMatrix H = testing::random_matrix(7, 50, 4);
  std::vector<ScoredToken> storage(7);
  std::vector<TopKHeap> heaps;
  for (std::size_t q = 0; q < 7; ++q) heaps.emplace_back(storage.data() + q, 1);
  std::vector<LogSumExp> sums(7);
  kernel().fused_scan_batch(layer.rows(), H.data(), 50, 7, std::vector<LogitEdits>(7).data(), heaps.data(),
                            sums.data());
  for (std::size_t q = 0; q < 7; ++q) {
    const Eigen::VectorXf h = H.row(static_cast<Eigen::Index>(q));
    TopKHeap heap(storage.data(), 1);
    LogSumExp sum;
    kernel().fused_scan(layer.rows(), h.data(), {}, heap, &sum);
    EXPECT_EQ(sum.value(), sums[q].value());
    EXPECT_NEAR(sum.value(), Reference(layer, h).log_z, 1e-4);
  }
}

TEST_P(Kernels, ArgmaxIsTheLowestOfEqualRows) {
  RowMajorMatrix W = RowMajorMatrix::Zero(200, 5);
  W(40, 2) = W(150, 2) = W(199, 2) = 1.0F;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(5);
  EXPECT_EQ(kernel().argmax(layer.rows(), h.data()), 40U);
  EXPECT_EQ(kernel().argmax(layer.rows(), Eigen::VectorXf::Zero(5).eval().data()), 0U);
}

TEST_P(Kernels, EditsActInsideTheFusedScan) {
  const SoftmaxLayer layer = testing::random_layer(300, 20, 9);
  const Eigen::VectorXf h = testing::random_vector(20, 10);
  const std::vector<float> logits = scan(layer.rows(), h);
  std::vector<std::uint64_t> allowed(5, 0);
  for (std::size_t t = 128; t < 300; t += 3) allowed[t / 64] |= std::uint64_t{1} << (t % 64);
  const std::vector<TokenBias> bias = {{5, 100.0F}, {131, 50.0F}, {298, -70.0F}};
  std::vector<ScoredToken> storage(300);
  TopKHeap heap(storage.data(), storage.size());
  LogSumExp sum;
  kernel().fused_scan(layer.rows(), h.data(), {allowed, bias.data(), bias.size()}, heap, &sum);
  std::size_t found = 0;
  double expected = 0.0;
  for (const ScoredToken& token : heap.sort()) {
    EXPECT_EQ((token.id - 128) % 3, 0);
    const float added = token.id == 131 ? 50.0F : token.id == 298 ? -70.0F : 0.0F;
    EXPECT_EQ(token.logit, logits[static_cast<std::size_t>(token.id)] + added);
    expected += std::exp(static_cast<double>(token.logit));
    ++found;
  }
  EXPECT_EQ(found, 58U);
  EXPECT_NEAR(sum.value(), std::log(expected), 1e-5);
}

TEST_P(Kernels, BiasesAtTheEdgesOfBlocksAreAdded) {
  constexpr std::size_t kVocab = 200;
  const SoftmaxLayer layer = testing::random_layer(kVocab, 20, 9);
  const RowMajorMatrix H = testing::random_matrix(2, 20, 10);
  const std::vector<TokenBias> bias = {{0, 1.0F},   {63, 2.0F},   {64, 3.0F}, {127, -4.0F},
                                       {128, 5.0F}, {192, -6.0F}, {199, 7.0F}};
  const std::vector<LogitEdits> edits(2, {{}, bias.data(), bias.size()});
  std::vector<ScoredToken> storage(2 * kVocab);
  TopKHeap together[] = {{storage.data(), kVocab}, {storage.data() + kVocab, kVocab}};
  kernel().fused_scan_batch(layer.rows(), H.data(), 20, 2, edits.data(), together, nullptr);
  for (std::size_t q = 0; q < 2; ++q) {
    const Eigen::VectorXf h = H.row(static_cast<Eigen::Index>(q));
    std::vector<float> expected = scan(layer.rows(), h);
    for (const TokenBias& one : bias) expected[static_cast<std::size_t>(one.id)] += one.bias;
    std::vector<ScoredToken> own(kVocab);
    TopKHeap alone(own.data(), kVocab);
    kernel().fused_scan(layer.rows(), h.data(), {{}, bias.data(), bias.size()}, alone, nullptr);
    for (TopKHeap* const heap : {&alone, &together[q]}) {
      for (const ScoredToken& token : heap->sort()) {
        ASSERT_EQ(token.logit, expected[static_cast<std::size_t>(token.id)]) << token.id;
      }
    }
  }
}

TEST_P(Kernels, EachContextOfABatchHasItsOwnEdits) {
  constexpr std::size_t kVocab = 200;
  const SoftmaxLayer layer = testing::random_layer(kVocab, 20, 9);
  const RowMajorMatrix H = testing::random_matrix(4, 20, 10);
  const std::vector<TokenBias> bias = {{3, 9.0F}, {64, 3.0F}, {130, -4.0F}, {199, 7.0F}};
  TokenMask late(kVocab);  // the first block of rows is wholly forbidden, and the third one
  for (TokenId id = 64; id < 200; id += id == 100 ? 92 : 1) late.allow(id);
  TokenMask early(kVocab);
  for (TokenId id = 0; id < 70; ++id) early.allow(id);
  const std::vector<LogitEdits> edits = {
      {}, {late, bias.data(), bias.size()}, {early, nullptr, 0}, {{}, bias.data() + 1, 2}};
  std::vector<ScoredToken> storage(4 * kVocab);
  std::vector<TopKHeap> together;
  for (std::size_t q = 0; q < 4; ++q) together.emplace_back(storage.data() + q * kVocab, kVocab);
  std::vector<LogSumExp> sums(4);
  kernel().fused_scan_batch(layer.rows(), H.data(), 20, 4, edits.data(), together.data(), sums.data());
  for (std::size_t q = 0; q < 4; ++q) {
    const Eigen::VectorXf h = H.row(static_cast<Eigen::Index>(q));
    std::vector<ScoredToken> own(kVocab);
    TopKHeap alone(own.data(), kVocab);
    LogSumExp sum;
    kernel().fused_scan(layer.rows(), h.data(), edits[q], alone, &sum);
    const std::span<const ScoredToken> expected = alone.sort();
    const std::span<const ScoredToken> found = together[q].sort();
    ASSERT_EQ(found.size(), expected.size()) << q;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].id, expected[i].id) << q;
      ASSERT_EQ(found[i].logit, expected[i].logit) << q;
    }
    EXPECT_EQ(sums[q].value(), sum.value()) << q;
  }
}

TEST_P(Kernels, SelectKeepsTheLowestIdsOfEqualLogitsInAnyOrder) {
  std::vector<float> logits(100, 1.0F);
  logits[70] = 2.0F;
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 100; ++i) ids.push_back(99 - i);
  std::vector<ScoredToken> storage(4);
  TopKHeap heap(storage.data(), 4);
  kernel().select(logits.data(), ids.data(), 100, heap);
  std::vector<TokenId> found;
  for (const ScoredToken& token : heap.sort()) found.push_back(token.id);
  EXPECT_EQ(found, (std::vector<TokenId>{29, 0, 1, 2}));
}

TEST_P(Kernels, SumExpAgreesWithDoublePrecision) {
  for (const std::size_t count : {0U, 1U, 2U, 15U, 16U, 17U, 1000U, 10007U}) {
    const Eigen::VectorXf values = testing::random_vector(static_cast<Eigen::Index>(count), 2, 4.0F);
    const float max = kernel().max(values.data(), count);
    double expected = 0.0;
    for (const float value : values) {
      EXPECT_LE(value, max);
      expected += std::exp(static_cast<double>(value) - static_cast<double>(max));
    }
    EXPECT_NEAR(kernel().sum_exp(values.data(), count, max), expected, 2e-6 * expected);
  }
  EXPECT_EQ(kernel().max(nullptr, 0), -std::numeric_limits<float>::infinity());
}

TEST_P(Kernels, ExpAgreesWithDoublePrecision) {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1000U}) {
    Eigen::VectorXf values = testing::random_vector(static_cast<Eigen::Index>(count), 2, 4.0F);
    std::vector<float> separate(count + 1, -1.0F);
    kernel().exp(values.data(), count, 1.5F, separate.data());
    EXPECT_EQ(separate[count], -1.0F);
    const Eigen::VectorXf before = values;
    kernel().exp(values.data(), count, 1.5F, values.data());
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = std::exp(static_cast<double>(before[static_cast<Eigen::Index>(i)]) - 1.5);
      EXPECT_NEAR(separate[i], expected, 1e-6 * expected);
      EXPECT_EQ(values[static_cast<Eigen::Index>(i)], separate[i]);
    }
  }
}

TEST_P(Kernels, FusedSelectIsBiasSoftmaxAndSearch) {
  for (const std::size_t count : {1U, 17U, 512U, 513U, 2000U}) {
    const Eigen::VectorXf products = testing::random_vector(static_cast<Eigen::Index>(count), 2, 4.0F);
    const Eigen::VectorXf bias = testing::random_vector(static_cast<Eigen::Index>(count), 3);
    for (const float* const b : {bias.data(), static_cast<const float*>(nullptr)}) {
      std::vector<float> logits(count);
      for (std::size_t i = 0; i < count; ++i) logits[i] = products.data()[i] + (b == nullptr ? 0.0F : b[i]);
      std::vector<ScoredToken> storage(10);
      TopKHeap heap(storage.data(), 5);
      TopKHeap expected(storage.data() + 5, 5);
      LogSumExp sum;
      kernel().fused_select(products.data(), b, count, heap, &sum);
      double exact = 0.0;
      for (std::size_t i = 0; i < count; ++i) {
        expected.push({logits[i], static_cast<TokenId>(i)});
        exact += std::exp(static_cast<double>(logits[i]));
      }
      EXPECT_NEAR(sum.value(), std::log(exact), 1e-5);
      const auto found = heap.sort();
      const auto wanted = expected.sort();
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].id, wanted[i].id);
        EXPECT_EQ(found[i].logit, wanted[i].logit);
      }
    }
  }
}

TEST_P(Kernels, OverflowingLogitsStayFinite) {
  RowMajorMatrix W(4, 2);
  W << 3e38F, 3e38F, -3e38F, -3e38F, 3e38F, -3e38F, 1.0F, 1.0F;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  const std::vector<float> logits = scan(layer.rows(), Eigen::Vector2f(1e30F, 1e30F));
  EXPECT_EQ(logits[0], std::numeric_limits<float>::max());
  EXPECT_EQ(logits[1], std::numeric_limits<float>::lowest());
  EXPECT_TRUE(std::isfinite(logits[2]));
  EXPECT_FLOAT_EQ(logits[3], 2e30F);
}

INSTANTIATE_TEST_SUITE_P(
    All, Kernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

TEST(Implementations, TheWidestVectorsComeFirst) {
  constexpr std::string_view kFastestFirst[] = {"AVX3_DL_AMX", "AVX3_DL", "AVX3", "AVX2_VNNI", "AVX2",
                                                "SSE4",        "SSE2",    "NEON", "EMU128",    "SCALAR"};
  ASSERT_FALSE(kernels::detail::implementations().empty());
  std::size_t last = 0;
  for (const Implementation& implementation : kernels::detail::implementations()) {
    const auto* const at = std::find(std::begin(kFastestFirst), std::end(kFastestFirst), implementation.name);
    if (at == std::end(kFastestFirst)) continue;  // what a program is compiled for need not be among these
    const auto rank = static_cast<std::size_t>(at - std::begin(kFastestFirst)) + 1;
    EXPECT_GT(rank, last) << implementation.name;
    last = rank;
  }
}

TEST(Implementations, FormsOfATargetAreNamedAfterItAndGiveItsLogits) {
  const SoftmaxLayer layer = testing::random_layer(300, 37, 1);
  const Eigen::VectorXf h = testing::random_vector(37, 3);
  std::map<std::string_view, std::vector<float>> of_targets;
  for (const Implementation& implementation : kernels::detail::implementations()) {
    EXPECT_TRUE(implementation.name.starts_with(implementation.target)) << implementation.name;
    std::vector<float> logits(300);
    implementation.scan(layer.rows(), 0, 300, h.data(), logits.data());
    EXPECT_EQ(of_targets.try_emplace(implementation.target, logits).first->second, logits);
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TOPKSOFTMAX_HEADER_ONLY)
TEST(Implementations, NoneIsLeftOutThatTheProcessorCanRun) {
  const auto has = [](std::string_view name) {
    return std::any_of(kernels::detail::implementations().begin(), kernels::detail::implementations().end(),
                       [name](const Implementation& implementation) { return implementation.name == name; });
  };
  if (__builtin_cpu_supports("sse4.2")) {
    EXPECT_TRUE(has("SSE4"));
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_TRUE(has("AVX2"));
  }
  if (__builtin_cpu_supports("avx512bw")) {
    EXPECT_TRUE(has("AVX3"));
  }
  EXPECT_EQ(kernels::detail::active().name.starts_with("AVX3"),
            static_cast<bool>(__builtin_cpu_supports("avx512bw")));
}
#endif

}  // namespace
}  // namespace topksoftmax
