// SPDX-License-Identifier: Apache-2.0
#include "transformer_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sliding_window.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using examples::Pieces;
using examples::SlidingWindow;
using examples::TransformerModel;

/// The model of TOPKSOFTMAX_HEADS.
class Transformer : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path = std::filesystem::path(TOPKSOFTMAX_HEADS) / "code.safetensors";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    model_ = std::make_unique<TransformerModel>(path);
  }

  std::vector<TokenId> tokens(const std::string& tensor) const {
    std::vector<TokenId> tokens(model_->file().tensor(tensor).size());
    model_->file().read(tensor, std::span<TokenId>(tokens));
    return tokens;
  }

  std::unique_ptr<TransformerModel> model_;
};

TEST_F(Transformer, GivesTheLogProbabilitiesStoredInItsFile) {
  const std::vector<TokenId> text = tokens("check.tokens");
  std::vector<float> expected(256);
  model_->file().read("check.log_probs", std::span<float>(expected));
  TransformerModel::State state = model_->start();
  const RowMajorMatrix contexts = model_->read(std::span(text).first(256), state);
  Workspace workspace;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double found = exact_log_prob(model_->layer(), contexts.row(static_cast<Eigen::Index>(i)).data(),
                                        model_->dim(), text[i + 1], workspace);
    EXPECT_NEAR(found, expected[i], 2e-4);
  }
}

TEST_F(Transformer, CutsTextAsThatWhichItLearnedFrom) {
  const std::vector<TokenId> all = tokens("test.tokens");
  std::size_t texts = 0;
  for (auto first = all.begin(); first != all.end(); ++texts) {
    const auto end = std::find(first + 1, all.end(), Pieces::kStart);
    const std::vector<TokenId> text(first, end);
    EXPECT_EQ(model_->pieces().encode(model_->pieces().decode(text)), text);
    first = end;
  }
  EXPECT_EQ(texts, 7U);
}

constexpr std::size_t kDim = 128;
constexpr std::size_t kHeads = 2;
constexpr std::size_t kBlocks = 2;
constexpr std::size_t kPositions = 8;
constexpr std::size_t kVocab = 40;

/// The tensors of a small model: random values that their types hold.
struct SmallModel {
  struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<double> values;
    bool bfloat = false;
  };
  std::map<std::string, Tensor> tensors;

  SmallModel() {
    RandomStream random(1);
    const auto add = [&](const std::string& name, std::vector<std::size_t> shape, double middle,
                         double spread) {
      Tensor& tensor = tensors[name];
      tensor.bfloat = shape.size() == 2;
      tensor.shape = std::move(shape);
      std::size_t size = 1;
      for (const std::size_t n : tensor.shape) size *= n;
      for (std::size_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(middle + spread * (2.0 * random.uniform() - 1.0));
        tensor.values.push_back(
            static_cast<double>(tensor.bfloat ? static_cast<float>(Eigen::bfloat16(value)) : value));
      }
    };
    const auto add_norm = [&](const std::string& prefix) {
      add(prefix + ".weight", {kDim}, 1.0, 0.5);
      add(prefix + ".bias", {kDim}, 0.0, 0.5);
    };
    add("weight", {kVocab, kDim}, 0.0, 1.0);
    add("position.weight", {kPositions, kDim}, 0.0, 1.0);
    for (std::size_t n = 0; n < kBlocks; ++n) {
      const std::string block = "blocks." + std::to_string(n) + ".";
      add_norm(block + "norm1");
      add(block + "attention.qkv.weight", {3 * kDim, kDim}, 0.0, 0.3);
      add(block + "attention.out.weight", {kDim, kDim}, 0.0, 0.2);
      add_norm(block + "norm2");
      add(block + "mlp.up.weight", {4 * kDim, kDim}, 0.0, 0.2);
      add(block + "mlp.up.bias", {4 * kDim}, 0.0, 0.5);
      add(block + "mlp.down.weight", {kDim, 4 * kDim}, 0.0, 0.1);
      add(block + "mlp.down.bias", {kDim}, 0.0, 0.5);
    }
    add_norm("norm");
  }

  std::filesystem::path write(const testing::TemporaryFolder& folder) const {
    std::string pieces = "<unk>\n<s>\n</s>\n";
    for (std::size_t i = 3; i < kVocab; ++i) pieces += "piece" + std::to_string(i) + "\n";
    std::map<std::string, std::vector<Eigen::bfloat16>> halves;
    std::map<std::string, std::vector<float>> floats;
    std::vector<TensorView> views = {
        TensorView{.name = "vocab.utf8",
                   .shape = {pieces.size()},
                   .bytes = std::as_bytes(std::span(pieces.data(), pieces.size()))}};
    for (const auto& [name, tensor] : tensors) {
      if (tensor.bfloat) {
        for (const double value : tensor.values) halves[name].emplace_back(static_cast<float>(value));
        views.push_back(tensor_view(name, tensor.shape, halves[name]));
      } else {
        floats[name].assign(tensor.values.begin(), tensor.values.end());
        views.push_back(tensor_view(name, tensor.shape, floats[name]));
      }
    }
    std::filesystem::path path = folder.path() / "small.safetensors";
    write_safetensors(path, views);
    return path;
  }

  using Rows = std::vector<std::vector<double>>;

  /// The contexts of a text in double precision, by plain loops over all of it.
  Rows contexts(std::span<const TokenId> text) const {
    Rows x(text.size(), std::vector<double>(kDim));
    for (std::size_t i = 0; i < text.size(); ++i) {
      for (std::size_t j = 0; j < kDim; ++j) {
        x[i][j] =
            at("weight", static_cast<std::size_t>(text[i]) * kDim + j) + at("position.weight", i * kDim + j);
      }
    }
    for (std::size_t n = 0; n < kBlocks; ++n) {
      const std::string block = "blocks." + std::to_string(n) + ".";
      add(x, product(block + "attention.out.weight", attention(block, norm(block + "norm1", x))));
      Rows inner = product(block + "mlp.up.weight", norm(block + "norm2", x));
      for (auto& row : inner) {
        for (std::size_t j = 0; j < row.size(); ++j) {
          const double u = row[j] + at(block + "mlp.up.bias", j);
          row[j] = 0.5 * u * (1.0 + std::erf(u / std::sqrt(2.0)));
        }
      }
      add(x, product(block + "mlp.down.weight", inner));
      for (auto& row : x) {
        for (std::size_t j = 0; j < kDim; ++j) row[j] += at(block + "mlp.down.bias", j);
      }
    }
    return norm("norm", x);
  }

 private:
  double at(const std::string& name, std::size_t i) const { return tensors.at(name).values[i]; }

  static void add(Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < kDim; ++j) x[i][j] += y[i][j];
    }
  }

  Rows product(const std::string& name, const Rows& x) const {
    const std::vector<std::size_t>& shape = tensors.at(name).shape;
    Rows y(x.size(), std::vector<double>(shape[0], 0.0));
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t r = 0; r < shape[0]; ++r) {
        for (std::size_t j = 0; j < shape[1]; ++j) y[i][r] += at(name, r * shape[1] + j) * x[i][j];
      }
    }
    return y;
  }

  Rows norm(const std::string& prefix, Rows x) const {
    for (auto& row : x) {
      double mean = 0.0;
      double variance = 0.0;
      for (const double value : row) mean += value / kDim;
      for (const double value : row) variance += (value - mean) * (value - mean) / kDim;
      for (std::size_t j = 0; j < kDim; ++j) {
        row[j] = (row[j] - mean) / std::sqrt(variance + 1e-5) * at(prefix + ".weight", j) +
                 at(prefix + ".bias", j);
      }
    }
    return x;
  }

  Rows attention(const std::string& block, const Rows& x) const {
    constexpr std::size_t size = kDim / kHeads;
    const Rows qkv = product(block + "attention.qkv.weight", x);
    Rows y(x.size(), std::vector<double>(kDim, 0.0));
    for (std::size_t head = 0; head < kHeads; ++head) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> weights(i + 1, 0.0);
        double sum = 0.0;
        for (std::size_t t = 0; t <= i; ++t) {
          double score = 0.0;
          for (std::size_t j = head * size; j < (head + 1) * size; ++j) score += qkv[i][j] * qkv[t][kDim + j];
          weights[t] = std::exp(score / 8.0);
          sum += weights[t];
        }
        for (std::size_t t = 0; t <= i; ++t) {
          for (std::size_t j = head * size; j < (head + 1) * size; ++j) {
            y[i][j] += weights[t] / sum * qkv[t][2 * kDim + j];
          }
        }
      }
    }
    return y;
  }
};

class SmallTransformer : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  SmallModel small_;
  TransformerModel model_{small_.write(folder_)};
  std::vector<TokenId> text_ = {1, 7, 39, 7, 3, 12, 0, 25};
};

TEST_F(SmallTransformer, ContextsAreThoseOfPlainLoops) {
  TransformerModel::State state = model_.start();
  const RowMajorMatrix contexts = model_.read(text_, state);
  const SmallModel::Rows expected = small_.contexts(text_);
  for (std::size_t i = 0; i < kPositions; ++i) {
    for (std::size_t j = 0; j < kDim; ++j) {
      ASSERT_NEAR(contexts(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)), expected[i][j], 2e-5)
          << "token " << i << ", value " << j;
    }
  }
}

TEST_F(SmallTransformer, ReadingInPartsAndOnThreadsChangesNoBit) {
  TransformerModel::State state = model_.start();
  const RowMajorMatrix together = model_.read(text_, state);
  for (const std::size_t part : {1U, 3U}) {
    for (const std::size_t threads : {1U, 2U, 3U}) {
      state = model_.start();
      for (std::size_t first = 0; first < text_.size(); first += part) {
        const std::size_t count = std::min(part, text_.size() - first);
        const RowMajorMatrix contexts = model_.read(std::span(text_).subspan(first, count), state, threads);
        EXPECT_EQ(contexts, together.middleRows(static_cast<Eigen::Index>(first), contexts.rows()));
      }
    }
  }
}

TEST_F(SmallTransformer, MoreTokensThanPositionsAreRefused) {
  TransformerModel::State state = model_.start();
  model_.read(std::span(text_).first(6), state);
  EXPECT_EQ(testing::error_of([&] { model_.read(std::span(text_).first(3), state); }),
            "the model looks at 8 tokens; there are 6, and 3 more do not fit");
  EXPECT_EQ(state.read, 6U);
}

TEST_F(SmallTransformer, AFullWindowKeepsItsLastHalf) {
  SlidingWindow window(model_);
  window.read(text_);
  EXPECT_EQ(window.slides(), 0U);
  const TokenId next[] = {9};
  const float* const h = window.read(next);
  EXPECT_EQ(window.slides(), 1U);
  const TokenId kept[] = {12, 0, 25, 9};
  TransformerModel::State state = model_.start();
  const RowMajorMatrix contexts = model_.read(kept, state);
  for (Eigen::Index j = 0; j < contexts.cols(); ++j) EXPECT_EQ(h[j], contexts(3, j));
}

TEST_F(SmallTransformer, TheLayerIsItsEmbeddingAsItIsStored) {
  EXPECT_EQ(model_.layer().vocab(), kVocab);
  EXPECT_EQ(model_.layer().weight_type(), WeightType::bfloat16);
  EXPECT_FALSE(model_.layer().has_bias());
}

TEST_F(SmallTransformer, TensorsOfAnotherShapeAreRefusedByName) {
  for (const auto& [name, tensor] : small_.tensors) {
    if (name == "weight") continue;  // which the others must agree with
    SmallModel wrong = small_;
    SmallModel::Tensor& changed = wrong.tensors[name];
    const std::size_t row = changed.values.size() / changed.shape.back();
    changed.shape.back() += 1;
    changed.values.resize(changed.values.size() + row);
    const std::string error = testing::error_of([&] { const TransformerModel model(wrong.write(folder_)); });
    EXPECT_NE(error.find("tensor \"" + name + "\""), std::string::npos) << name << ": " << error;
  }
}

TEST_F(SmallTransformer, MissingTensorsAreNamed) {
  for (const auto& [name, tensor] : small_.tensors) {
    SmallModel wrong = small_;
    wrong.tensors.erase(name);
    const std::string error = testing::error_of([&] { const TransformerModel model(wrong.write(folder_)); });
    EXPECT_NE(error.find('"' + name + '"'), std::string::npos) << name << ": " << error;
  }
}

TEST_F(SmallTransformer, WeightsThatAreNotFiniteAreRefusedByName) {
  for (const char* const name : {"weight", "position.weight", "norm.bias", "blocks.1.mlp.up.weight"}) {
    SmallModel wrong = small_;
    wrong.tensors[name].values[5] = std::numeric_limits<double>::infinity();
    const std::string error = testing::error_of([&] { const TransformerModel model(wrong.write(folder_)); });
    EXPECT_NE(error.find('"' + std::string(name) + "\": value 5 is inf; it must be finite"),
              std::string::npos)
        << error;
  }
}

TEST_F(SmallTransformer, RowsThatAreNoWholeHeadsAreRefused) {
  for (auto& [name, tensor] : small_.tensors) {
    for (std::size_t& size : tensor.shape) size = size % kDim == 0 ? size / kDim * 100 : size;
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    tensor.values.resize(count);
  }
  const std::string error = testing::error_of([&] { const TransformerModel model(small_.write(folder_)); });
  EXPECT_NE(error.find("tensor \"weight\": has rows of 100 values, no multiple of a head's 64"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace topksoftmax
