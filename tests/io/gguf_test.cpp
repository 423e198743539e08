// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::memory_folder;
using testing::number_bytes;
using testing::TemporaryFolder;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

/// The message of the Error that opening these bytes gives, or "" if they are accepted.
std::string refusal(const std::string& bytes) {
  static const TemporaryFolder folder(memory_folder());
  const auto path = folder.write("some.gguf", bytes);
  const std::string message = error_of([&] { GgufFile::open(path); });
  if (!message.empty()) {
    EXPECT_THAT(message, HasSubstr("some.gguf: "));
  }
  return message;
}

std::string refusal(const GgufWriter& writer) {
  return refusal(writer.bytes());
}

/// A file with an entry of every type, one array of texts, and tensors of three types.
GgufWriter small_file() {
  GgufWriter writer;
  writer.value("general.architecture", "tiny")
      .value("a.uint8", 0, number_bytes<std::uint8_t>(200))
      .value("a.int8", 1, number_bytes<std::int8_t>(-100))
      .value("a.uint16", 2, number_bytes<std::uint16_t>(60000))
      .value("a.int16", 3, number_bytes<std::int16_t>(-30000))
      .value("a.uint32", 4, number_bytes<std::uint32_t>(4000000000))
      .value("a.int32", 5, number_bytes<std::int32_t>(-2000000000))
      .value("a.float32", 6, number_bytes(0.1F))
      .value("a.bool", 7, number_bytes<std::uint8_t>(1))
      .value("a.uint64", 10, number_bytes<std::uint64_t>(std::uint64_t{1} << 53))
      .value("a.int64", 11, number_bytes<std::int64_t>(-5))
      .value("a.float64", 12, number_bytes(0.1))
      .array("an.array", 3, 3, number_bytes<std::int16_t>(1) + std::string(4, '\0'))
      .array("tokenizer.ggml.tokens", 8, 3,
             GgufWriter::text("<s>") + GgufWriter::text("") + GgufWriter::text("h\u00e4"))
      .array("empty", 8, 0, "")
      .tensor("w", {64, 3}, 8, std::string(3 * 2 * 34, 'q'))
      .tensor("b", {3}, 0, std::string(12, 'b'))
      .tensor("x", {4, 3, 2, 1}, 30, std::string(48, 'x'));
  return writer;
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  for (const std::uint32_t version : {2U, 3U}) {
    const TemporaryFolder folder;
    GgufWriter writer = small_file();
    writer.version = version;
    const GgufFile file = GgufFile::open(folder.write("f.gguf", writer.bytes()));
    EXPECT_EQ(file.path(), folder.path() / "f.gguf");
    EXPECT_EQ(file.metadata().size(), 15U);
    EXPECT_EQ(file.text("general.architecture"), "tiny");
    EXPECT_EQ(file.number("a.uint8"), 200.0);
    EXPECT_EQ(file.number("a.int8"), -100.0);
    EXPECT_EQ(file.number("a.uint16"), 60000.0);
    EXPECT_EQ(file.number("a.int16"), -30000.0);
    EXPECT_EQ(file.number("a.uint32"), 4e9);
    EXPECT_EQ(file.number("a.int32"), -2e9);
    EXPECT_EQ(file.number("a.float32"), static_cast<double>(0.1F));
    EXPECT_EQ(file.number("a.bool"), 1.0);
    EXPECT_EQ(file.number("a.uint64"), 0x1p53);
    EXPECT_EQ(file.number("a.int64"), -5.0);
    EXPECT_EQ(file.number("a.float64"), 0.1);
    EXPECT_THAT(file.texts("tokenizer.ggml.tokens").value(), ElementsAre("<s>", "", "h\u00e4"));
    EXPECT_TRUE(file.texts("empty").value().empty());
    EXPECT_EQ(file.number("absent"), std::nullopt);
    EXPECT_EQ(file.text("absent"), std::nullopt);
    EXPECT_EQ(file.texts("absent"), std::nullopt);

    const GgufValue& array = file.metadata()[12];
    EXPECT_EQ(array.name, "an.array");
    EXPECT_EQ(array.type, GgufType::int16);
    EXPECT_TRUE(array.is_array);
    EXPECT_EQ(array.count, 3U);
    EXPECT_EQ(array.bytes.size(), 6U);
  }
}

TEST(Gguf, SaysWhereMetadataAreOfAnotherType) {
  const TemporaryFolder folder;
  const GgufFile file = GgufFile::open(folder.write("f.gguf", small_file().bytes()));
  EXPECT_THAT(error_of([&] { file.number("general.architecture"); }),
              HasSubstr("f.gguf: metadata \"general.architecture\" is a string, expected a number"));
  EXPECT_THAT(error_of([&] { file.number("an.array"); }),
              HasSubstr("is an array of int16, expected a number"));
  EXPECT_THAT(error_of([&] { file.text("a.bool"); }), HasSubstr("is a bool, expected a string"));
  EXPECT_THAT(error_of([&] { file.text("empty"); }), HasSubstr("is an array of string, expected a string"));
  EXPECT_THAT(error_of([&] { file.texts("an.array"); }), HasSubstr("expected an array of string"));
}

TEST(Gguf, GivesTensorsWithTheirSizesFromTheOutermost) {
  const TemporaryFolder folder;
  std::span<const std::byte> view;
  std::shared_ptr<const void> storage;
  {
    const GgufFile file = GgufFile::open(folder.write("f.gguf", small_file().bytes()));
    ASSERT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(file.tensors()[0].name, "w");
    const GgufTensor& w = file.tensor("w");
    EXPECT_EQ(w.type, GgmlType::q8_0);
    EXPECT_THAT(w.shape, ElementsAre(3U, 64U));
    EXPECT_EQ(w.bytes.size(), 204U);
    EXPECT_THAT(file.tensor("x").shape, ElementsAre(1U, 2U, 3U, 4U));
    EXPECT_TRUE(file.contains("b"));
    EXPECT_FALSE(file.contains("c"));
    EXPECT_THAT(error_of([&] { file.tensor("c"); }),
                HasSubstr("f.gguf: has no tensor \"c\"; nearest by name: \""));
    view = file.tensor("b").bytes;
    storage = file.storage();
  }
  std::filesystem::remove(folder.path() / "f.gguf");
  EXPECT_EQ(view.size(), 12U);
  for (const std::byte byte : view) EXPECT_EQ(byte, std::byte{'b'});
}

TEST(Gguf, TakesDataInAnyOrderAndAtAnyAlignment) {
  for (const std::uint32_t alignment : {1U, 8U, 64U, 4096U}) {
    const TemporaryFolder folder;
    GgufWriter writer;
    writer.alignment = alignment;
    writer.value("general.alignment", alignment)
        .tensor_at("late", {1}, 0, 4 * alignment)
        .tensor_at("early", {1}, 24, 0)
        .tensor_at("none", {0, 7}, 14, 4 * alignment)
        .tensor_at("one", {}, 28, 12 * alignment)
        .data(std::string(12 * alignment + 8, 'd'));
    const GgufFile file = GgufFile::open(folder.write("f.gguf", writer.bytes()));
    EXPECT_EQ(file.tensors()[0].name, "early");
    EXPECT_EQ(file.tensors()[1].name, "none");
    EXPECT_EQ(file.tensors()[2].name, "late");
    EXPECT_TRUE(file.tensor("one").shape.empty());
    EXPECT_EQ(file.tensor("one").bytes.size(), 8U);
    EXPECT_EQ(file.tensor("one").bytes.back(), std::byte{'d'});
  }
}

TEST(Gguf, AFileOfNothingIsAFile) {
  EXPECT_EQ(refusal(GgufWriter().header()), "");
  EXPECT_EQ(refusal(GgufWriter()), "");
}

TEST(Gguf, KnowsTheBlocksOfTypes) {
  const std::vector<std::pair<std::uint32_t, std::pair<std::size_t, std::size_t>>> blocks = {
      {0, {1, 4}},      {1, {1, 2}},      {2, {32, 18}},    {3, {32, 20}},    {6, {32, 22}},
      {7, {32, 24}},    {8, {32, 34}},    {9, {32, 36}},    {10, {256, 84}},  {11, {256, 110}},
      {12, {256, 144}}, {13, {256, 176}}, {14, {256, 210}}, {15, {256, 292}}, {24, {1, 1}},
      {25, {1, 2}},     {26, {1, 4}},     {27, {1, 8}},     {28, {1, 8}},     {30, {1, 2}}};
  std::size_t known = 0;
  for (std::uint32_t type = 0; type < 100; ++type) known += ggml_block(static_cast<GgmlType>(type)) ? 1U : 0U;
  EXPECT_EQ(known, blocks.size());
  for (const auto& [type, block] : blocks) {
    GgufWriter writer;
    writer.tensor("t", {512, 2}, type, std::string(1024 / block.first * block.second, 't'));
    EXPECT_EQ(refusal(writer), "") << type;
    // One value less, or one byte less, and it is no such tensor any more.
    writer = GgufWriter();
    writer.alignment = 1;
    writer.value("general.alignment", std::uint32_t{1})
        .tensor("t", {512, 2}, type, std::string(1024 / block.first * block.second - 1, 't'));
    EXPECT_THAT(refusal(writer), HasSubstr("tensor \"t\": begins at 0 and takes ")) << type;
    if (block.first == 1) continue;
    writer = GgufWriter();
    writer.tensor("t", {511, 2}, type, std::string(2000, 't'));
    EXPECT_EQ(refusal(writer).substr(refusal(writer).find("tensor")),
              "tensor \"t\": has rows of 511 values, " + ggml_type_name(static_cast<GgmlType>(type)) +
                  " has them in blocks of " + std::to_string(block.first));
  }
  EXPECT_EQ(ggml_type_name(GgmlType::q4_k), "Q4_K");
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(39)), "type 39");
}

TEST(Gguf, ListsTensorsOfUnknownTypesAndDoesNotGiveThem) {
  const TemporaryFolder folder;
  GgufWriter writer;
  writer.tensor("known", {8}, 24, "12345678").tensor("new", {256, 4}, 16, std::string(264, 'n'));
  const GgufFile file = GgufFile::open(folder.write("f.gguf", writer.bytes()));
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[1].name, "new");
  EXPECT_EQ(file.tensors()[1].type, static_cast<GgmlType>(16));
  EXPECT_THAT(file.tensors()[1].shape, ElementsAre(4U, 256U));
  EXPECT_TRUE(file.tensors()[1].bytes.empty());
  EXPECT_TRUE(file.contains("new"));
  EXPECT_THAT(error_of([&] { file.tensor("new"); }),
              HasSubstr("tensor \"new\": is of ggml's type 16, which is not known here"));
  // What can be checked of them is.
  EXPECT_THAT(refusal(GgufWriter().tensor_at("new", {256}, 16, 32).data(std::string(32, 'n'))),
              HasSubstr("begins at 32 and takes 1 bytes; the data have 32"));
  EXPECT_THAT(
      refusal(GgufWriter().tensor("a", {64}, 24, std::string(64, 'a')).tensor_at("new", {256}, 16, 32)),
      HasSubstr("tensor \"new\": begins at 32, within the tensor before it, which ends at 64"));
}

TEST(Gguf, RefusesOtherFilesVersionsAndByteOrders) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("does not begin with \"GGUF\"; is this a GGUF file?"));
  EXPECT_THAT(refusal(std::string("GGU")), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(refusal(std::string("ggml") + std::string(100, '\0')),
              HasSubstr("does not begin with \"GGUF\""));
  for (const std::uint32_t version : {0U, 1U, 4U, 0x10003U, ~0U}) {
    GgufWriter writer = small_file();
    writer.version = version;
    EXPECT_THAT(refusal(writer), HasSubstr("the header is of version " + std::to_string(version) +
                                           "; versions 2 and 3 can be read"));
  }
  for (const std::uint32_t version : {0x02000000U, 0x03000000U}) {
    GgufWriter writer = small_file();
    writer.version = version;
    EXPECT_THAT(refusal(writer), HasSubstr("the header is big-endian"));
  }
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { GgufFile::open(folder.path() / "absent"); }), HasSubstr("No such file"));
}

TEST(Gguf, RefusesAFileThatIsCutOffAnywhere) {
  const GgufWriter writer = small_file();
  const std::string whole = writer.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // The last tensor's padding may be missing.
    if (size + 16 >= whole.size()) continue;
    EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  }
}

TEST(Gguf, SurvivesAnyByteThatIsChanged) {
  const std::string whole = small_file().bytes();
  const std::size_t header = small_file().header().size();
  std::size_t refused = 0;
  std::size_t read = 0;
  for (std::size_t place = 0; place < header; ++place) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ change);
      ++(refusal(changed).empty() ? read : refused);
    }
  }
  EXPECT_GT(refused, header / 4) << "counts, lengths, types";
  EXPECT_GT(read, header / 4) << "values and letters of names";
}

TEST(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  GgufWriter writer;
  writer.claiming_tensors(kHuge);
  EXPECT_THAT(refusal(writer.header()),
              HasSubstr("the header has 9223372036854775808 tensors; the 8 bytes that "
                        "follow hold at most 0"));
  writer.claiming_tensors(1).claiming_values(std::uint64_t{1} << 60);
  EXPECT_THAT(
      refusal(writer.header() + std::string(26, 'a')),
      HasSubstr("has 1152921504606846976 entries of metadata; the 26 bytes that follow hold at most 2"));

  for (const std::uint64_t count : {kHuge, ~std::uint64_t{0}, std::uint64_t{50}}) {
    const std::string length = number_bytes(count);
    EXPECT_THAT(refusal(GgufWriter().value("text", 8, length + "abcd").header()),
                HasSubstr("metadata \"text\" has a text of " + std::to_string(count) + " bytes at byte 40"));
    EXPECT_THAT(refusal(GgufWriter().claiming_values(1).header() + length + "abcd" + std::string(10, '\0')),
                HasSubstr("entry 0 of the metadata has a text of " + std::to_string(count) + " bytes"));
    for (const std::uint32_t type : {0U, 3U, 6U, 7U, 8U, 10U, 12U}) {
      EXPECT_THAT(refusal(GgufWriter().array("a", type, count, "abcd").header()),
                  HasSubstr("metadata \"a\" has " + std::to_string(count) + " elements; the 4 bytes"));
    }
  }
  EXPECT_THAT(
      refusal(GgufWriter().array("a", 8, 2, GgufWriter::text("whole") + number_bytes(kHuge)).header()),
      HasSubstr("metadata \"a\" has a text of 9223372036854775808 bytes"));
}

TEST(Gguf, RefusesMetadataThatCannotBe) {
  EXPECT_THAT(refusal(GgufWriter().value("a", 13, "12345678")),
              HasSubstr("metadata \"a\" is of the unknown type 13; types are below 13"));
  EXPECT_THAT(refusal(GgufWriter().array("a", 99, 1, "12345678")), HasSubstr("is of the unknown type 99"));
  EXPECT_THAT(refusal(GgufWriter().array("a", 9, 1, std::string(12, '\0'))),
              HasSubstr("metadata \"a\" is an array of arrays, which cannot be read"));
  EXPECT_THAT(refusal(GgufWriter().value("a", 7, "\2")), HasSubstr("holds 2 for a bool; it must be 0 or 1"));
  EXPECT_THAT(refusal(GgufWriter().array("a", 7, 3, std::string("\0\1\xff", 3))),
              HasSubstr("holds 255 for a bool"));
  EXPECT_THAT(refusal(GgufWriter().value("a", 1.0F).value("b", 1.0F).value("a", 2.0F)),
              HasSubstr("metadata \"a\" appears twice"));
}

TEST(Gguf, RefusesABadAlignment) {
  for (const std::uint32_t alignment : {0U, 3U, 24U, ~0U}) {
    EXPECT_THAT(refusal(GgufWriter().value("general.alignment", alignment)),
                HasSubstr("metadata \"general.alignment\" is " + std::to_string(alignment) +
                          "; it must be a power of two"));
  }
  EXPECT_THAT(refusal(GgufWriter().value("general.alignment", 32.0F)),
              HasSubstr("is a float32, expected uint32"));
  EXPECT_THAT(refusal(GgufWriter().array("general.alignment", 4, 0, "")),
              HasSubstr("is an array of uint32, expected uint32"));
  const std::uint32_t largest = std::uint32_t{1} << 31;
  EXPECT_EQ(refusal(GgufWriter().value("general.alignment", largest)), "");
  EXPECT_THAT(refusal(GgufWriter().value("general.alignment", largest).tensor("t", {1}, 24, "t")),
              HasSubstr("the data have 0"));
}

TEST(Gguf, RefusesBadTensors) {
  const std::string data(64, 't');
  EXPECT_THAT(refusal(GgufWriter().tensor("t", {1, 1, 1, 1, 1}, 0, data)),
              HasSubstr("tensor \"t\": has 5 dimensions, the limit is 4"));
  EXPECT_THAT(refusal(GgufWriter().tensor("t", {1}, 24, data).tensor("t", {1}, 24, data)),
              HasSubstr("tensor \"t\": appears twice"));
  EXPECT_THAT(refusal(GgufWriter().tensor_at("t", {1}, 24, 8).data(data)),
              HasSubstr("begins at 8, which is not a multiple of the alignment, 32"));
  EXPECT_THAT(refusal(GgufWriter().tensor_at("t", {16}, 0, 32).data(data)),
              HasSubstr("begins at 32 and takes 64 bytes; the data have 64"));
  for (const std::uint64_t offset : {std::uint64_t{96}, kHuge, ~std::uint64_t{31}}) {
    EXPECT_THAT(refusal(GgufWriter().tensor_at("t", {1}, 0, offset).data(data)),
                HasSubstr("begins at " + std::to_string(offset) + " and takes 4 bytes"));
  }
  EXPECT_THAT(refusal(GgufWriter().tensor_at("a", {40}, 24, 0).tensor_at("b", {8}, 24, 32).data(data)),
              HasSubstr("tensor \"b\": begins at 32, within the tensor before it, which ends at 40"));
  EXPECT_THAT(refusal(GgufWriter().tensor_at("a", {8}, 24, 32).tensor_at("b", {8}, 24, 32).data(data)),
              HasSubstr("within the tensor before it"));
  EXPECT_THAT(refusal(GgufWriter().tensor("t", {}, 8, data)), HasSubstr("has rows of 1 values"));
}

TEST(Gguf, RefusesSizesThatOverflow) {
  const std::uint64_t root = std::uint64_t{1} << 32;
  const std::vector<std::vector<std::uint64_t>> shapes = {
      {kHuge}, {~std::uint64_t{0}}, {root, root}, {0, root, root}, {root, 1, root, root}};
  for (const std::vector<std::uint64_t>& shape : shapes) {
    for (const std::uint32_t type : {0U, 8U, 14U, 16U, 28U}) {
      EXPECT_THAT(refusal(GgufWriter().tensor_at("t", shape, type, 0).data(std::string(64, 't'))),
                  HasSubstr("has more values than this machine can address"));
    }
  }
  EXPECT_THAT(refusal(GgufWriter().tensor_at("t", {kHuge - 1}, 0, 0)),
              HasSubstr("has more values than this machine can address"));
  EXPECT_THAT(refusal(GgufWriter().tensor_at("t", {root, root >> 2}, 24, 0).data(std::string(64, 't'))),
              HasSubstr("takes 4611686018427387904 bytes; the data have 64"));
}

TEST(Gguf, IsNoPipe) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(GgufFile::recognises(pipe));
  EXPECT_THAT(error_of([&] { GgufFile::open(pipe); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace topksoftmax
