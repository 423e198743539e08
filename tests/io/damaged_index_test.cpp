// SPDX-License-Identifier: Apache-2.0
//
// Index files with one value that would lead a backend out of its memory, or astray.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/saved_index.hpp"
#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/baselines/build_lsh_mips.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/baselines/build_wta_lsh_each.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Parts;
using testing::saved;
using testing::world;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr std::uint16_t kHalfNan = 0x7e00;
constexpr std::uint16_t kShortNan = 0x7fc0;  // of a bfloat16

/// One change to an index, and why it is refused then.
struct Damage {
  std::string what;
  std::function<void(Parts&)> inflict;
  std::string why;
};

/// A tensor's value `at` becomes another one.
template <class T>
Damage value(const std::string& tensor, std::size_t at, T other, const std::string& why) {
  return {tensor, [=](Parts& parts) { parts.set(tensor, at, other); }, why};
}

/// A tensor's first id becomes the same as the second.
Damage twice(const std::string& tensor) {
  const auto copy = [=](Parts& parts) {
    char* const bytes = parts.bytes.at(tensor).data();
    std::memcpy(bytes, bytes + sizeof(TokenId), sizeof(TokenId));
  };
  return {tensor, copy, "twice"};
}

/// A tensor loses all its rows.
Damage no_rows(const std::string& tensor, const std::string& why) {
  const auto empty = [=](Parts& parts) {
    parts.tensors.at(tensor).shape = {0};
    parts.bytes.at(tensor).clear();
  };
  return {tensor, empty, why};
}

Damage option(const std::string& name, const std::string& other, const std::string& why) {
  return {name, [=](Parts& parts) { parts.metadata.at("options." + name) = other; }, why};
}

/// A backend, and what may befall its index.
struct Case {
  std::shared_ptr<const TopKSoftmax> backend;
  std::vector<Damage> damages;
};

std::vector<Case> cases() {
  const SoftmaxLayer& layer = world().layer;
  const RowMajorMatrix& train = world().train;
  return {
      {L2S::train_kmeans(layer, train, {.clusters = 4, .budget = 30}),
       {value("ids", 2, TokenId{700}, "has the token 700"), value("ids", 2, TokenId{-5}, "has the token -5"),
        value("ids", 1, TokenId{0}, "not ascending"),
        value("offsets", 1, ~std::uint64_t{0}, "does not rise from 0 to"),
        value("offsets", 0, std::uint64_t{1}, "does not rise"),
        value("offsets", 4, std::uint64_t{1}, "does not rise"),
        value("clusters", 7, kNan, "has a value that is NaN"),
        value("outside.weights", 7, kNan, "has a value that is NaN"),
        value("outside.weights", 7, kInfinite, "has a value that is not finite"),
        value("outside.offsets", 1, kInfinite, "has a value that is not finite"),
        value("outside.error", 2, static_cast<double>(kInfinite), "has a value that is not finite")}},
      {SvdSoftmax::build(layer),
       {value("tokens", 7, kNan, "has a value that is NaN"),
        option("preview_width", "25", "preview_width is 25"),
        option("refine_width", "0", "refine_width is 0")}},
      {RowClusters::build(layer, train, {.clusters = 10, .visited = 3}),
       {twice("tokens"), value("tokens", 3, TokenId{700}, "has the token 700"),
        value("starts", 0, std::uint64_t{1}, "does not rise"),
        value("starts", 1, std::uint64_t{0}, "leaves cluster 0 without tokens"),
        value("starts", 10, std::uint64_t{699}, "does not rise"),
        value("centroids", 7, kNan, "has a value that is NaN"), option("visited", "0", "visited is 0"),
        value("outside.weights", 7, kInfinite, "has a value that is not finite")}},
      {L2S::train(layer, train, {.clusters = 1, .budget = 250, .label_depth = 64}),
       {value("codes", 3, 7.5F, "has another bias than the layer for token"),
        value("codes", 3, kNan, "in row 3"), value("codes.longest", 0, -1.0, "is no length"),
        value("codes.longest", 0, static_cast<double>(kNan), "codes.longest")}},
      {Quantized::build(layer),
       {value("prefixes", 0, 0.5F, "another bias than the layer in row 0"),
        value("prefixes", 16, kNan, "in row 1")}},
      {Certified::build(layer, train, {.prefix = 8, .width = 16}),
       {value("outside_position", 0, 1.5, "is not between 0 and 1"),
        value("outside_position", 0, static_cast<double>(kNan), "outside_position"),
        value("rows.sizes", 3, -1.0, "has a value below 0"),
        value("rows.spreads", 3, -1.0, "has a value below 0"),
        value("rows.numbers", 0, -1.0, "has a value below 0"), value("rows.covariance", 7, kNan, "NaN"),
        value("tails", 14, kNan, "in row 0"), option("prefix", "16", "prefixes"),
        option("prefix", "9", "prefix is 9"), option("width", "100000000", "width 100000000")}},
      {Certified::build(layer, train, {.prefix = 8, .width = 16, .boxes = BoundBoxes::always}),
       {value("boxes.centres", 16, kNan, "in row 1"), value("boxes.spreads", 24, kNan, "in row 1"),
        twice("order"), option("boxes", "0", "another bias than the layer"),
        option("boxes", "4294967297", "boxes"),  // 1 in 32 bits
        option("box_width", "12", "box_width 12"), option("box_width", "6", "box_width 6"),
        value("bound_weights", 0, static_cast<double>(kNan), "bound_weights"),
        value("Q", 0, kHalfNan, "\"Q\"")}},
      {AdaptiveSoftmax::build(layer, train),
       {twice("ids"), value("starts", 3, std::uint64_t{701}, "does not rise from 70"),
        option("head", "701", "head is 701"),
        value("outside.weights", 7, kInfinite, "has a value that is not finite"),
        no_rows("outside.offsets", "outside.offsets")}},
      {Shortlist::build(layer), {value("list", 3, TokenId{700}, "has the token 700")}},
      {GreedyMips::build(layer),
       {value("entries", 7, TokenId{-1}, "has the token -1"),
        value("entries", 6, kNan, "with the weight NaN"), option("budget", "0", "budget is 0")}},
      {PcaMips::build(layer, {.depth = 4}),
       {value("starts", 20, std::uint32_t{800}, "does not rise"), option("depth", "60", "depth is 60")}},
      {LshMips::build(layer, {.tables = 8, .bits = 5}),
       {value("offsets", 34, std::uint32_t{800}, "does not rise"), option("bits", "64", "bits is 64"),
        option("tables", "3689348814741910324", "ids")}},
      {Fgd::build(layer),
       {value("ground.targets", 9, TokenId{700}, "has the token 700"),
        value("ground.offsets", 9, ~std::uint64_t{0}, "does not rise"),
        option("upper_layers", "99", "is not in the file"), no_rows("entries", "has no row to start from")}},
      {WtaLsh::build(layer, {.hash = {.bands = 20}}),
       {value("slots", 2, std::uint32_t{701}, "has a span of 701"),
        value("slot_offsets", 1, std::uint64_t{1}, "slots"),
        value("positions", 0, std::int32_t{24}, "a position is 24"),
        value("frequent", 10, ~std::uint64_t{0}, "tokens of V = 700 or more"),
        option("threshold", "0", "threshold is 0")}},
      {WtaLshEach::build(layer, {.hash = {.bands = 20}}),
       {option("top_collisions", "0", "top_collisions is 0")}},
  };
}

TEST(DamagedIndexes, AreRefused) {
  for (const auto& [backend, damages] : cases()) {
    const std::string whole = saved(*backend);
    for (const Damage& damage : damages) {
      SCOPED_TRACE(std::string(backend->name()) + ", " + damage.what + ": " + damage.why);
      Parts parts(whole);
      damage.inflict(parts);
      EXPECT_THAT(testing::refusal(parts.file(), world().layer, standard_loader()),
                  AllOf(HasSubstr(damage.why), HasSubstr("is damaged; build the index again")));
    }
  }
}

TEST(DamagedIndexes, WithCodesAndDitherAreRefused) {
  const SoftmaxLayer layer = testing::random_layer(200, 80, 1);
  const RowMajorMatrix contexts = testing::clustered_contexts(300, 80, 8, 2);
  constexpr std::size_t kFirstRadius = kernels::PrefixBlocks::code_radius_offset() / sizeof(std::uint16_t);
  const std::shared_ptr<const TopKSoftmax> proven = Certified::build(
      layer, contexts, {.prefix = 8, .int4_width = 32, .width = 80, .boxes = BoundBoxes::never});
  const std::shared_ptr<const TopKSoftmax> dithered = Certified::build(
      layer, contexts,
      {.prefix = 8, .int4_width = 32, .width = 80, .boxes = BoundBoxes::never, .failure_probability = 1e-6});
  const Case damaged[] = {
      {proven,
       {value("prefixes", kFirstRadius + 3, kShortNan, "in row 3"),
        value("RQ", kernels::PrefixBlocks::kRows * 2 + 3, kShortNan, "in row 3")}},
      {dithered,
       {value("prefixes", kFirstRadius + 3, kShortNan, "in row 3"),
        value("dither", 5, 0.51F, "is not within 0.5"), value("dither", 31, kNan, "dither")}}};
  for (const auto& [backend, damages] : damaged) {
    const std::string whole = saved(*backend);
    EXPECT_EQ(testing::refusal(whole, layer, standard_loader()), "");
    for (const Damage& damage : damages) {
      SCOPED_TRACE(damage.what + ": " + damage.why);
      Parts parts(whole);
      damage.inflict(parts);
      EXPECT_THAT(testing::refusal(parts.file(), layer, standard_loader()),
                  AllOf(HasSubstr(damage.why), HasSubstr("is damaged; build the index again")));
    }
  }
}

}  // namespace
}  // namespace topksoftmax
