// SPDX-License-Identifier: Apache-2.0
//
// What bad input gets. Every row is tried, and the rows are the table in the guide to files and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/gguf_writer.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/io/checkpoint.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax {
namespace {

using testing::GgufWriter;
using testing::number_bytes;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::TemporaryFolder;

constexpr Eigen::Index kVocab = 100;
constexpr Eigen::Index kDim = 8;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BadInput {
  std::string input;           ///< as the table words it
  std::string outcome;         ///< the exception's type, or what is answered
  std::string message;         ///< of the exception
  std::function<void()> give;  ///< does it, and checks the answer where there is one
};

/// A query of a small layer, with an answer that must not change when it is refused.
void refused(const QueryOptions& options, const Eigen::VectorXf& h) {
  const auto head = Fused::make(random_layer(kVocab, kDim, 1));
  Workspace workspace;
  TopK answer = head->query(random_vector(kDim, 3), {.k = 3});
  const std::vector<TokenId> before = answer.ids;
  try {
    head->query(h, options, workspace, answer);
  } catch (...) {
    EXPECT_EQ(answer.ids, before);
    throw;
  }
}

void refused(const QueryOptions& options) {
  refused(options, random_vector(kDim, 2));
}

Eigen::VectorXf context_with(float value) {
  Eigen::VectorXf h = random_vector(kDim, 2);
  h[5] = value;
  return h;
}

void layer_with(float weight, float bias) {
  RowMajorMatrix W = random_matrix(kVocab, kDim, 1);
  Eigen::VectorXf b = random_vector(kVocab, 2);
  W(4, 2) = weight;
  b[7] = bias;
  SoftmaxLayer::borrow(W, b);
}

/// Writes a file and opens it; an Error tells of it by its name, wherever the folder may be.
template <class Open>
void open_bytes(const std::string& name, const std::string& bytes, const Open& open) {
  const TemporaryFolder folder;
  const auto path = folder.write(name, bytes);
  try {
    open(path);
  } catch (const Error& error) {
    std::string message = error.what();
    EXPECT_TRUE(message.starts_with(path.string()));
    throw Error(message.substr(folder.path().string().size() + 1));
  }
}

/// Opens a safetensors file with this header and so many bytes of data, and says what `length` the header
/// has.
void open_file(const std::string& header, std::size_t data, std::uint64_t length) {
  open_bytes("head.safetensors", number_bytes(length) + header + std::string(data, '\0'), HeadFile::open);
}

void open_file(const std::string& header, std::size_t data) {
  open_file(header, data, header.size());
}

void open_gguf(const GgufWriter& writer) {
  open_bytes("model.gguf", writer.bytes(), [](const auto& path) { find_gguf_head(GgufFile::open(path)); });
}

std::string weight_entry(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"weight":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

const std::vector<BadInput>& rows() {
  static const RowMajorMatrix contexts = random_matrix(30, kDim, 5);
  static const std::vector<std::uint64_t> short_mask(1);
  static const std::vector<TokenBias> unordered = {{7, 1.0F}, {3, 1.0F}};
  static const std::vector<TokenBias> outside = {{kVocab, 1.0F}};
  static const std::vector<TokenBias> infinite = {{7, -kInfinity}};
  static const std::string error = "Error";
  static const std::string argument = "std::invalid_argument";
  static const std::vector<BadInput> all = {
      {"NaN in W", error, "softmax layer: W at row 4, column 2 is NaN; it must be finite",
       [] { layer_with(kNan, 0.0F); }},
      {"±∞ in b", error, "softmax layer: b[7] is infinite; it must be finite",
       [] { layer_with(0.0F, kInfinity); }},
      {"b of another length than W has rows", error,
       "softmax layer: b has 99 values, W has 100 rows; they must agree (or b be empty)",
       [] { SoftmaxLayer::own(random_matrix(kVocab, kDim, 1), random_vector(kVocab - 1, 2)); }},
      {"a column of a row-major matrix for b", error,
       "softmax layer: b has values 8 floats apart; they must lie next to each other: take a copy",
       [] {
         const RowMajorMatrix W = random_matrix(kVocab, kDim, 1);
         SoftmaxLayer::borrow(W, W.col(0));
       }},
      {"a scale that makes weights infinite", error,
       "softmax layer: scale[1] is 1e+38; it must be between -2.6584558e+36 and 2.6584558e+36, so that "
       "weights "
       "are finite",
       [] {
         const std::vector<std::int8_t> bytes(2 * kDim, 3);
         const std::vector<float> scales = {1.0F, 1e38F};
         SoftmaxLayer::borrow({.data = bytes.data(),
                               .scales = scales.data(),
                               .count = 2,
                               .dim = kDim,
                               .stride = kDim,
                               .type = WeightType::int8},
                              0);
       }},
      {"a soft cap out of range", error,
       "softmax layer: the soft cap is -30; it must be between 1e-09 and 1e+09, or 0 for none",
       [] { random_layer(kVocab, kDim, 1).with({.soft_cap = -30.0F}); }},
      {"W without rows", error, "softmax layer: W has 0 rows; the vocabulary needs at least 1 token",
       [] { SoftmaxLayer::own(RowMajorMatrix(0, kDim), Eigen::VectorXf()); }},
      {"rows of a model's tokens out of order", error,
       "mapped: row 1 is token 3, row 0 before it token 7; ids must rise strictly, so that of equal logits "
       "the lower id goes first: sort the layer's rows by their ids",
       [] {
         MappedVocabulary::wrap(Fused::make(random_layer(2, kDim, 1)), {7, 3}, kVocab);
       }},
      {"NaN in a context to learn from", error, "certified: context 3 has a value that is not finite",
       [] {
         RowMajorMatrix bad = contexts;
         bad(3, 1) = kNan;
         Certified::build(random_layer(kVocab, kDim, 1), bad);
       }},
      {"contexts to learn from of another dimension", error,
       "certified: contexts have 7 values, the layer's dimension is 8",
       [] { Certified::build(random_layer(kVocab, kDim, 1), RowMajorMatrix(contexts.leftCols(7))); }},
      {"no contexts where a backend must learn", error,
       "l2s: there are no training contexts; at least 1 is needed",
       [] { L2S::train(random_layer(kVocab, kDim, 1), RowMajorMatrix(0, kDim)); }},
      {"an option out of range", error, "fgd: M is 1; it must be at least 2 and at most 1024",
       [] { Fgd::build(random_layer(kVocab, kDim, 1), contexts, {.M = 1}); }},
      {"clusters of rows that lack a token", error,
       "row-clusters: token 5 is in no cluster; it must be in one",
       [] {
         std::vector<std::vector<TokenId>> lists(2);
         for (TokenId id = 0; id < kVocab; ++id) {
           if (id != 5) lists[static_cast<std::size_t>(id % 2)].push_back(id);
         }
         RowClusters::from_centroids(random_layer(kVocab, kDim, 1), random_matrix(2, kDim, 3), lists);
       }},
      {"NaN in h", argument, "query: h[5] is NaN; every value must be finite",
       [] { refused({}, context_with(kNan)); }},
      {"±∞ in h", argument, "query: h[5] is -inf; every value must be finite",
       [] { refused({}, context_with(-kInfinity)); }},
      {"h of another length", argument, "query: h has 7 values; the layer's dimension is 8",
       [] { refused({}, random_vector(kDim - 1, 2)); }},
      {"h for a W that is transposed", argument,
       "query: h has 100 values; the layer's dimension is 8, and W has 100 rows: is it transposed?",
       [] { refused({}, random_vector(kVocab, 2)); }},
      {"k = 0", argument, "query: k is 0; at least 1 token must be asked for", [] { refused({.k = 0}); }},
      {"k > V", "V tokens", "",
       [] {
         const TopK answer =
             Fused::make(random_layer(kVocab, kDim, 1))->query(random_vector(kDim, 2), {.k = kVocab + 1});
         EXPECT_EQ(answer.size(), std::size_t{kVocab});
       }},
      {"k above the number of allowed tokens", "the allowed tokens", "",
       [] {
         TokenMask mask(kVocab);
         mask.allow(17);
         mask.allow(42);
         TopK answer = Fused::make(random_layer(kVocab, kDim, 1))
                           ->query(random_vector(kDim, 2), {.k = 3, .allowed = mask});
         std::sort(answer.ids.begin(), answer.ids.end());
         EXPECT_EQ(answer.ids, (std::vector<TokenId>{17, 42}));
       }},
      {"a mask that is too short", argument, "query: the mask has bits for 64 tokens; V is 100",
       [] { refused({.allowed = short_mask}); }},
      {"a mask that is too short where a token is drawn", argument,
       "query: the mask has bits for 64 tokens; V is 100",
       [] {
         const auto head = Certified::build(random_layer(kVocab, kDim, 1));
         RandomStream random(1);
         Sampler().draw(*head, random_vector(kDim, 2), random, {.allowed = short_mask});
       }},
      {"biases out of order, or a token twice", argument,
       "query: logit_bias names token 3 after 7; ids must be strictly ascending",
       [] { refused({.logit_bias = unordered}); }},
      {"a bias for a token that is not there", argument,
       "query: logit_bias names token 100; ids must be at least 0 and below V = 100",
       [] { refused({.logit_bias = outside}); }},
      {"a bias of ±∞ or NaN", argument,
       "query: the logit_bias of token 7 is not finite; forbid a token by the mask",
       [] { refused({.logit_bias = infinite}); }},
      {"another number of answers than contexts", argument,
       "query_batch: there are 30 contexts and 29 answers; they must be as many",
       [] {
         std::vector<Workspace> workspaces(1);
         std::vector<TopK> answers(29);
         Fused::make(random_layer(kVocab, kDim, 1))->query_batch(contexts, {}, workspaces, answers);
       }},
      {"one context's options, of several", argument,
       "query_each: context 3: query: k is 0; at least 1 token must be asked for",
       [] {
         std::vector<QueryOptions> options(static_cast<std::size_t>(contexts.rows()));
         options[3].k = 0;
         Fused::make(random_layer(kVocab, kDim, 1))->query_each(Contexts::of(contexts), options);
       }},
      {"memory that runs out", "std::bad_alloc", "std::bad_alloc",
       [] {
         const auto head = Fused::make(random_layer(kVocab, kDim, 1));
         const Eigen::VectorXf h = random_vector(kDim, 2);
         const testing::FailingAllocation failing(1);
         head->query(h);
       }},
      {"a file that is not there", error, "no.safetensors: cannot open: No such file or directory",
       [] { HeadFile::open("no.safetensors"); }},
      {"a file that ends too early", error,
       "head.safetensors: the header's length is 30, but only 1 bytes follow", [] { open_file("{", 0, 30); }},
      {"a file of another format", error,
       "head.safetensors: the header's length is 2147483648, the limit 100000000; is this a safetensors "
       "file?",
       [] { open_file("{}", 0, std::uint64_t{1} << 31); }},
      {"a tensor past the end of its file", error,
       "head.safetensors: tensor \"weight\": data_offsets end at 80, past the end of the data, 40",
       [] { open_file(weight_entry("F32", "[10,2]", "[0,80]"), 40); }},
      {"a shape that does not match the bytes", error,
       "head.safetensors: tensor \"weight\": shape [10, 3] of F32 takes 120 bytes, data_offsets span 80",
       [] { open_file(weight_entry("F32", "[10,3]", "[0,80]"), 80); }},
      {"a shape whose product overflows", error,
       "head.safetensors: tensor \"weight\": shape [4294967296, 4294967296] has more values than this "
       "machine can "
       "address",
       [] { open_file(weight_entry("F32", "[4294967296,4294967296]", "[0,80]"), 80); }},
      {"a tensor of an unsupported type", error,
       "head.safetensors: tensor \"weight\": is stored as I32, expected F32, F16, BF16 or I8",
       [] { open_file(weight_entry("I32", "[10,2]", "[0,80]"), 80); }},
      {"a checkpoint with a shard in another folder", error,
       "model.safetensors.index.json: the index has the tensor \"lm_head.weight\" in \"../a.safetensors\", "
       "which is not the name of a file in its folder",
       [] {
         open_bytes("model.safetensors.index.json", R"({"weight_map":{"lm_head.weight":"../a.safetensors"}})",
                    open_checkpoint_layer);
       }},
      {"a GGUF file that claims more than it holds", error,
       "model.gguf: the header has 4294967296 tensors; the 16 bytes that follow hold at most 0",
       [] { open_gguf(GgufWriter().claiming_tensors(std::uint64_t{1} << 32)); }},
      {"a GGUF file with a tensor past its end", error,
       "model.gguf: tensor \"output.weight\": begins at 0 and takes 64 bytes; the data have 32",
       [] {
         open_gguf(GgufWriter().tensor("output.weight", {4, 4}, 0, std::string(32, 'w')));
       }},
      {"a lexical table with a line of another form", error,
       "lex.s2t, line 1: \"1.5\" is not a probability; it must be a number from 0 to 1",
       [] {
         const std::vector<std::string> words = {"das", "the"};
         std::istringstream table("the das 1.5\n");
         AlignmentLists::read(table, "lex.s2t", words, words);
       }},
      {"a vocabulary map with a line of another form", error,
       "vmap.txt, line 1: it must be source words, a tab, and target words",
       [] {
         const std::vector<std::string> words = {"das", "the"};
         std::istringstream map("das the\n");
         AlignmentLists::read_vocabulary_map(map, "vmap.txt", words, words);
       }},
  };
  return all;
}

TEST(BadInput, GetsWhatTheTableSays) {
  for (const BadInput& row : rows()) {
    SCOPED_TRACE(row.input);
    if (row.outcome == "std::bad_alloc" && !testing::can_fail_allocations()) continue;
    const bool throws = !row.message.empty();
    std::string type;
    std::string message;
    try {
      row.give();
    } catch (const Error& error) {
      type = "Error";
      message = error.what();
    } catch (const std::invalid_argument& error) {
      type = "std::invalid_argument";
      message = error.what();
    } catch (const std::bad_alloc& error) {
      type = "std::bad_alloc";
      message = error.what();
    }
    EXPECT_EQ(type, throws ? row.outcome : "");
    EXPECT_EQ(message, row.message);
  }
}

std::string as_table() {
  std::string text = "| input | what happens |\n|---|---|\n";
  for (const BadInput& row : rows()) {
    text += "| " + row.input + " | ";
    if (row.message.empty()) {
      text += row.outcome;
    } else {
      text += "`" + row.outcome + "`";
      if (row.message != row.outcome) text += ": " + row.message;
    }
    text += " |\n";
  }
  return text;
}

TEST(BadInput, IsTabulatedInTheGuide) {
  const std::string begin = "<!-- bad input, as tests/bad_input_test.cpp has it -->\n";
  const std::string end = "<!-- end of bad input -->\n";
  const std::string guide = testing::read_bytes(TOPKSOFTMAX_ERRORS);
  const std::size_t first = guide.find(begin);
  const std::size_t last = guide.find(end);
  ASSERT_TRUE(first != std::string::npos && last != std::string::npos) << "the guide has lost its markers";
  const std::string wanted = guide.substr(0, first + begin.size()) + as_table() + guide.substr(last);
  const std::string written = ::testing::TempDir() + "files-with-bad-input.md";
  if (guide != wanted) std::ofstream(written, std::ios::binary) << wanted;
  EXPECT_TRUE(guide == wanted)
      << "the guide's table is not what bad_input_test.cpp does. Take it over:\n  cp " << written << " "
      << TOPKSOFTMAX_ERRORS;
}

}  // namespace
}  // namespace topksoftmax
