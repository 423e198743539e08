// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/safetensors_shards.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class SafetensorsShardsTest : public ::testing::Test {
 protected:
  SafetensorsShardsTest() {
    write("a.safetensors", {tensor_view("one", {3}, one_), tensor_view("both", {1, 3}, one_)});
    write("b.safetensors", {tensor_view("two", {2, 1}, two_), tensor_view("both", {2}, two_)});
  }

  void write(const std::string& name, const std::vector<TensorView>& tensors) const {
    write_safetensors(folder_.path() / name, tensors);
  }

  SafetensorsShards open(const std::string& index) const {
    return SafetensorsShards::open(folder_.write("model.safetensors.index.json", index));
  }
  /// The same for a weight_map with these entries.
  SafetensorsShards open_map(const std::string& entries) const {
    return open("{\"weight_map\":{" + entries + "}}");
  }

  std::string refusal(const std::string& index) const {
    return error_of([&] { open(index); });
  }
  std::string map_refusal(const std::string& entries) const {
    return error_of([&] { open_map(entries); });
  }

  testing::TemporaryFolder folder_;
  std::vector<float> one_ = {1.0F, 2.0F, 3.0F};
  std::vector<float> two_ = {4.0F, 5.0F};
};

TEST_F(SafetensorsShardsTest, GivesTensorsFromTheirFiles) {
  const SafetensorsShards shards = open(
      R"({"metadata":{"total_size":32,"weight_map":["x",{"weight_map":{"y":1}}]},)"
      R"("weight_map":{"one":"a.safetensors","two":"b.safetensors","both":"b.safetensors"},"other":null})");
  EXPECT_EQ(shards.path(), folder_.path() / "model.safetensors.index.json");
  EXPECT_EQ(shards.files().size(), 2U);
  EXPECT_TRUE(shards.contains("one"));
  EXPECT_FALSE(shards.contains("three"));
  EXPECT_THAT(shards.tensor("both").shape, ElementsAre(2U));
  EXPECT_EQ(shards.file("one").path(), folder_.path() / "a.safetensors");
  EXPECT_THAT(shards.file("two").values<float>("two"), ElementsAre(4.0F, 5.0F));
  EXPECT_THAT(shards.tensor("one", std::array{SafetensorsFile::any_size}).shape, ElementsAre(3U));
  EXPECT_NE(shards.storage("one"), shards.storage("two"));
  EXPECT_EQ(shards.storage("both"), shards.storage("two"));
  EXPECT_THAT(
      error_of([&] { shards.tensor("three"); }),
      HasSubstr(
          R"(model.safetensors.index.json: has no tensor "three"; nearest by name: "both", "one", "two")"));
  EXPECT_THAT(error_of([&] { shards.storage("three"); }), HasSubstr("has no tensor \"three\""));
  EXPECT_THAT(error_of([&] { shards.tensor("two", std::array<std::size_t, 1>{2}); }),
              HasSubstr("b.safetensors: tensor \"two\": shape is [2, 1], expected [2]"));
}

TEST_F(SafetensorsShardsTest, TakesOneFileToo) {
  const SafetensorsShards shards = SafetensorsShards::open(folder_.path() / "a.safetensors");
  EXPECT_EQ(shards.files().size(), 1U);
  EXPECT_THAT(shards.tensor("both").shape, ElementsAre(1U, 3U));
  EXPECT_THAT(error_of([&] { shards.tensor("two"); }),
              HasSubstr(R"(a.safetensors: has no tensor "two"; nearest by name: "both", "one")"));
}

TEST_F(SafetensorsShardsTest, HoldsOnlyWhatTheIndexHas) {
  const SafetensorsShards shards = open_map(R"("one":"a.safetensors")");
  EXPECT_EQ(shards.files().size(), 1U);
  EXPECT_FALSE(shards.contains("both"));
  EXPECT_THAT(error_of([&] { shards.tensor("both"); }),
              HasSubstr(R"(has no tensor "both"; nearest by name: "one")"));
  EXPECT_TRUE(open_map("").files().empty());
}

TEST_F(SafetensorsShardsTest, RefusesNamesThatLeadElsewhere) {
  for (const char* const name : {"", ".", "..", "../a.safetensors", "/etc/passwd", "x/a.safetensors",
                                 "..\\\\a", "a.safetensors\\u0000", "x\\u0000/.."}) {
    EXPECT_THAT(map_refusal("\"one\":\"" + std::string(name) + "\""),
                ::testing::AllOf(HasSubstr("index.json: the index has the tensor \"one\" in \""),
                                 HasSubstr("\", which is not the name of a file in its folder")));
  }
}

TEST_F(SafetensorsShardsTest, RefusesAnIndexThatIsNotTrue) {
  EXPECT_THAT(map_refusal(R"("two":"a.safetensors")"),
              ::testing::AllOf(HasSubstr("a.safetensors: has no tensor \"two\", which "),
                               HasSubstr("model.safetensors.index.json has in it")));
  EXPECT_THAT(map_refusal(R"("two":"c.safetensors")"), HasSubstr("c.safetensors: cannot open: No such file"));
  folder_.write("c.safetensors", "no safetensors");
  EXPECT_THAT(map_refusal(R"("two":"c.safetensors")"), HasSubstr("c.safetensors: is a text file, not a"));
}

TEST_F(SafetensorsShardsTest, RefusesWhatIsNoIndex) {
  EXPECT_THAT(refusal(""), HasSubstr("index.json: is not valid JSON at byte"));
  EXPECT_THAT(refusal("{\"weight_map\":{}"), HasSubstr("is not valid JSON at byte"));
  EXPECT_THAT(refusal(std::string("{\"weight_map\":{}}\0", 18)),
              HasSubstr("is not valid JSON at byte 17: a zero byte"));
  EXPECT_THAT(refusal("{\"\xff\":{}}"), HasSubstr("is not valid JSON at byte"));
  EXPECT_THAT(refusal("{}"),
              HasSubstr("the index has no weight_map; is this a model.safetensors.index.json?"));
  EXPECT_THAT(refusal(R"({"metadata":{"weight_map":{}}})"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal("[]"), HasSubstr("the index is an array, expected an object"));
  EXPECT_THAT(refusal("3"), HasSubstr("the index is a number, expected an object"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"),
              HasSubstr("holds an array at \"weight_map\", expected an object"));
  EXPECT_THAT(refusal(R"({"weight_map":"a"})"), HasSubstr("holds a string at \"weight_map\""));
  EXPECT_THAT(refusal(R"({"weight_map":{},"weight_map":{}})"),
              HasSubstr("holds the key \"weight_map\" twice"));
  for (const char* const value : {"1", "-1", "1.5", "true", "null", "[]", "{}"}) {
    EXPECT_THAT(map_refusal("\"one\":" + std::string(value)),
                HasSubstr(" at \"one\" of weight_map, expected the name of a file"));
  }
  EXPECT_THAT(map_refusal(R"("one":"a.safetensors","one":"a.safetensors")"),
              HasSubstr("has the tensor \"one\" twice"));
}

TEST_F(SafetensorsShardsTest, RefusesALongIndexBeforeReadingIt) {
  const auto path = folder_.write("model.safetensors.index.json", "{");
  std::filesystem::resize_file(path, SafetensorsShards::max_index_bytes + 1);
  EXPECT_THAT(error_of([&] { SafetensorsShards::open(path); }),
              HasSubstr("has 100000001 bytes, the limit for an index is 100000000"));
}

TEST_F(SafetensorsShardsTest, SurvivesDeepNesting) {
  EXPECT_THAT(refusal("{\"a\":" + std::string(1'000'000, '[')), HasSubstr("is not valid JSON"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), HasSubstr("is not valid JSON"));
}

}  // namespace
}  // namespace topksoftmax
