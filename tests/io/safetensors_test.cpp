// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstring>
#include <random>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::read_bytes;
using testing::TemporaryFolder;

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

/// A file with this header and `data_bytes` bytes of data, put together by hand.
std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

/// The message of the Error that opening these bytes gives, or "" if they are accepted.
std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("some.safetensors", bytes);
  const std::string message = error_of([&] { SafetensorsFile::open(path); });
  if (!message.empty()) {
    EXPECT_THAT(message, HasSubstr("some.safetensors: "));
  }
  return message;
}

/// The same for a header with one tensor entry "t".
std::string tensor_refusal(const std::string& fields, std::size_t data_bytes = 8) {
  return refusal(file_bytes("{\"t\":{" + fields + "}}", data_bytes));
}

TEST(Safetensors, ReadsWhatTheFormatSays) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"__metadata__":{"name":"tiny"},"b":{"dtype":"I32","shape":[2],"data_offsets":[6,14]},)"
      R"("a":{"shape":[3,1],"dtype":"F16","data_offsets":[0,6]},"none":{"dtype":"F32","shape":[0,5],"data_offsets":[6,6]},)"
      R"("one":{"dtype":"U8","shape":[],"data_offsets":[14,15]}}   )";
  const std::array<std::uint16_t, 3> halves = {0x3c00, 0xc000, 0x0001};  // 1, -2, the least denormal
  const std::array<std::int32_t, 2> integers = {-7, 1 << 30};
  std::string bytes = length_prefix(header.size()) + header;
  bytes.append(reinterpret_cast<const char*>(halves.data()), 6);
  bytes.append(reinterpret_cast<const char*>(integers.data()), 8);
  bytes += '\x2a';

  const SafetensorsFile file = SafetensorsFile::open(folder.write("f", bytes));
  EXPECT_EQ(file.path(), folder.path() / "f");
  EXPECT_EQ(file.metadata().at("name"), "tiny");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "none");
  EXPECT_EQ(file.tensors()[2].name, "b");
  EXPECT_EQ(file.tensors()[3].name, "one");
  EXPECT_TRUE(file.contains("one"));
  EXPECT_FALSE(file.contains("two"));
  EXPECT_THAT(file.tensor("none").shape, ElementsAre(0u, 5u));
  EXPECT_EQ(file.tensor("none").size(), 0u);
  EXPECT_EQ(file.tensor("one").size(), 1u);

  const RowMajorMatrix a = file.matrix("a");
  ASSERT_EQ(a.rows(), 3);
  EXPECT_EQ(a(0, 0), 1.0f);
  EXPECT_EQ(a(1, 0), -2.0f);
  EXPECT_EQ(a(2, 0), std::ldexp(1.0f, -24));
  EXPECT_EQ(file.matrix("none").cols(), 5);

  std::array<std::int64_t, 2> b{};
  file.read("b", std::span<std::int64_t>(b));
  EXPECT_THAT(b, ElementsAre(-7, 1 << 30));
}

TEST(Safetensors, AViewOutlivesTheFileObjectWithItsStorage) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> values = {1, 2, 3};
  write_safetensors(folder.path() / "f", std::array{tensor_view("t", {3}, values)});
  std::span<const std::int32_t> view;
  std::shared_ptr<const void> storage;
  {
    const SafetensorsFile file = SafetensorsFile::open(folder.path() / "f");
    view = file.values<std::int32_t>("t");
    storage = file.storage();
  }
  std::filesystem::remove(folder.path() / "f");
  EXPECT_THAT(view, ElementsAre(1, 2, 3));
}

TEST(Safetensors, RoundTripsEveryType) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  std::vector<std::byte> bytes(8 * 15);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());

  std::vector<TensorView> written;
  for (int type = 0; type <= static_cast<int>(DataType::float64); ++type) {
    const auto data_type = static_cast<DataType>(type);
    const std::string name = "tensor \"" + std::string(data_type_name(data_type)) + "\" \n\u00e9";
    written.push_back({name, data_type, {3, 5}, std::span(bytes).first(15 * data_type_size(data_type))});
  }
  written.push_back({"empty", DataType::float32, {4, 0}, {}});
  written.push_back({"scalar", DataType::float64, {}, std::span(bytes).first(8)});
  const TensorMetadata metadata = {{"name", "all types"}, {"provenance", "\u2014 \"quoted\"\n"}};
  write_safetensors(folder.path() / "f", written, metadata);

  const SafetensorsFile file = SafetensorsFile::open(folder.path() / "f");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const TensorView& read = file.tensors()[i];
    EXPECT_EQ(read.name, written[i].name);
    EXPECT_EQ(read.type, written[i].type);
    EXPECT_EQ(read.shape, written[i].shape);
    EXPECT_TRUE(
        std::equal(read.bytes.begin(), read.bytes.end(), written[i].bytes.begin(), written[i].bytes.end()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.bytes.data()) % 64, 0u);
  }
  EXPECT_THAT(folder.list(), ElementsAre("f"));
}

TEST(Safetensors, AnEmptyFileOfTensorsIsAFile) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "f", {});
  EXPECT_TRUE(SafetensorsFile::open(folder.path() / "f").tensors().empty());
}

TEST(Safetensors, RefusesWhatIsNotAFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(folder.path() / "absent"); }),
              AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(folder.path()); }), HasSubstr("not a regular file"));
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(pipe); }), HasSubstr("not a regular file"));
}

TEST(Safetensors, RefusesABadHeaderLength) {
  EXPECT_THAT(refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(refusal(length_prefix(0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(length_prefix(3) + "{}"), HasSubstr("length is 3, but only 2 bytes follow"));
  EXPECT_THAT(refusal(length_prefix(100'000'001) + "{}"),
              HasSubstr("length is 100000001, the limit 100000000"));
  EXPECT_THAT(refusal(length_prefix(~std::uint64_t{0}) + "{}"), HasSubstr("length is 18446744073709551615"));
  EXPECT_EQ(refusal(length_prefix(2) + "{}"), "");
}

TEST(Safetensors, RefusesALongHeaderBeforeReadingIt) {
  const TemporaryFolder folder;
  constexpr std::uint64_t claimed = std::uint64_t{2} << 30;
  const auto path = folder.write("large", length_prefix(claimed) + "{");
  std::filesystem::resize_file(path, 8 + claimed);  // sparse: the bytes are there to be mapped, and all zero
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(path); }),
              HasSubstr("length is 2147483648, the limit 100000000"));
}

TEST(Safetensors, SaysWhatAFileOfAnotherFormatIs) {
  const std::string rest(30, 'x');
  EXPECT_THAT(refusal("\x93NUMPY\1" + rest), HasSubstr("is a NumPy array, not a safetensors file"));
  EXPECT_THAT(refusal(std::string("GGUF\3\0\0\0", 8) + rest), HasSubstr("is a GGUF file, not"));
  EXPECT_THAT(refusal(std::string("PK\3\4\0\0\b\b", 8) + rest), HasSubstr("is a zip archive"));
  EXPECT_THAT(refusal("\x80\2\x8a\n" + rest), HasSubstr("is a pickle, not"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("is a pointer that Git LFS"));
  EXPECT_THAT(refusal("hello, world"), HasSubstr(": is a text file, not a safetensors file"));
  EXPECT_THAT(refusal("\xff"
                      "hello, world"),
              HasSubstr("; is this a safetensors file?"));
  // A length that a header may have tells nothing.
  EXPECT_THAT(refusal(std::string("\x80\2\0\0\0\0\0\0{}", 10)), HasSubstr("length is 640, but only 2 bytes"));
}

TEST(Safetensors, ListsTensorsOfTypesThatAreNotRead) {
  const TemporaryFolder folder;
  for (const std::string dtype :
       {"C64", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"}) {
    SCOPED_TRACE(dtype);
    const auto path =
        folder.write("f", file_bytes(R"({"t":{"dtype":")" + dtype +
                                         R"(","shape":[2,2],"data_offsets":[0,3]},)"
                                         R"("u":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                                     4));
    const SafetensorsFile file = SafetensorsFile::open(path);
    ASSERT_EQ(file.tensors().size(), 2U);
    const TensorView& listed = file.tensors()[0];
    EXPECT_EQ(data_type_name(listed.type), dtype);
    EXPECT_EQ(data_type_size(listed.type), 0U);
    EXPECT_THAT(listed.shape, ElementsAre(2U, 2U));
    EXPECT_EQ(listed.size(), 4U);
    EXPECT_EQ(listed.bytes.size(), 3U);
    EXPECT_TRUE(file.contains("t"));
    const std::string message =
        "f: tensor \"t\": is stored as " + dtype + ", which this library does not read";
    EXPECT_THAT(error_of([&] { file.tensor("t"); }), HasSubstr(message));
    EXPECT_THAT(error_of([&] { file.matrix("t"); }), HasSubstr(message));
    EXPECT_THAT(error_of([&] { file.values<std::uint8_t>("t"); }), HasSubstr(message));
    std::array<float, 4> values{};
    EXPECT_THAT(error_of([&] { file.read("t", std::span<float>(values)); }), HasSubstr(message));
    EXPECT_EQ(file.vector("u")[0], 1.0F);
    EXPECT_THAT(error_of([&] { write_safetensors(folder.path() / "g", std::array{listed}); }),
                HasSubstr("is of " + dtype + ", which this library does not write"));
  }
}

TEST(Safetensors, RefusesTensorsOfTypesThatAreNotReadAtBadPlaces) {
  const auto with = [](const std::string& shape, const std::string& offsets) {
    return tensor_refusal(R"("dtype":"F4","shape":)" + shape + R"(,"data_offsets":)" + offsets);
  };
  EXPECT_EQ(with("[4,4]", "[0,8]"), "");
  EXPECT_THAT(with("[4,4]", "[8,0]"), HasSubstr("begin at 8, after their end, 0"));
  EXPECT_THAT(with("[4,4]", "[0,9]"), HasSubstr("end at 9, past the end of the data, 8"));
  EXPECT_THAT(with("[4,4]", "[4,8]"), HasSubstr("begin at 4, with a gap after"));
  EXPECT_THAT(with("[4,4]", "[0,4]"), HasSubstr("end at byte 4 of the data, which has 8"));
  EXPECT_THAT(with("[9223372036854775807,2]", "[0,8]"),
              HasSubstr("more values than this machine can address"));
}

TEST(Safetensors, RefusesABadHeader) {
  EXPECT_THAT(refusal(file_bytes("[]", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(file_bytes(" {}", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(file_bytes("{", 0)), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal(file_bytes("{}{}", 0)), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal(file_bytes(std::string("{}\0", 3), 0)), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal(file_bytes("{\"\xff\":{}}", 0)), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal(file_bytes(R"({"t":3})", 0)), HasSubstr(R"(the number 3 at "t", expected an object)"));
  EXPECT_THAT(refusal(file_bytes(R"({"t":[]})", 0)), HasSubstr("an array"));
  EXPECT_THAT(refusal(file_bytes(R"({"t":null})", 0)), HasSubstr("null"));
  EXPECT_THAT(refusal(file_bytes(R"({"__metadata__":{"a":1}})", 0)),
              HasSubstr(R"(the number 1 at "a", expected a string)"));
  EXPECT_THAT(refusal(file_bytes(R"({"__metadata__":{"a":{}}})", 0)), HasSubstr("an object"));
  EXPECT_THAT(refusal(file_bytes(R"({"__metadata__":{"a":"1","a":"2"}})", 0)), HasSubstr(R"(key "a" twice)"));
  EXPECT_THAT(refusal(file_bytes(R"({"__metadata__":{},"__metadata__":{}})", 0)), HasSubstr("twice"));
}

TEST(Safetensors, RefusesDeepNestingAtOnce) {
  for (const char* const fields :
       {"\"t\":{\"shape\":", "\"t\":{\"x\":", "\"__metadata__\":{\"x\":", "\"t\":"}) {
    EXPECT_NE(refusal(file_bytes(std::string("{").append(fields).append(1'000'000, '['), 0)), "");
  }
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_NE(refusal(file_bytes(objects, 0)), "");
}

TEST(Safetensors, RefusesABadTensorEntry) {
  const std::string f32 = R"("dtype":"F32",)";
  EXPECT_EQ(tensor_refusal(f32 + R"("shape":[2],"data_offsets":[0,8])"), "");
  EXPECT_THAT(tensor_refusal(""), HasSubstr(R"(tensor "t": has no dtype)"));
  EXPECT_THAT(tensor_refusal(f32 + R"("data_offsets":[0,8])"), HasSubstr("has no shape"));
  EXPECT_THAT(tensor_refusal(f32 + R"("shape":[2])"), HasSubstr("has no data_offsets"));
  EXPECT_THAT(tensor_refusal(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"),
              HasSubstr(R"(unknown dtype "F33")"));
  EXPECT_THAT(tensor_refusal(R"("dtype":4)"), HasSubstr("dtype is the number 4, expected a string"));
  EXPECT_THAT(tensor_refusal(f32 + f32), HasSubstr(R"(key "dtype" twice)"));
  EXPECT_THAT(tensor_refusal(R"("shape":[],"shape":[])"), HasSubstr(R"(key "shape" twice)"));
  EXPECT_THAT(tensor_refusal(R"("data_offsets":[0,0],"data_offsets":[0,0])"), HasSubstr("twice"));
  EXPECT_THAT(tensor_refusal(R"("extra":1)"), HasSubstr(R"(holds "extra")"));
  EXPECT_THAT(tensor_refusal(R"("shape":"2")"), HasSubstr("shape is the string \"2\""));
  EXPECT_THAT(tensor_refusal(R"("shape":[-1])"), HasSubstr("shape holds the number -1"));
  EXPECT_THAT(tensor_refusal(R"("shape":[1.5])"), HasSubstr("shape holds the number 1.5"));
  EXPECT_THAT(tensor_refusal(R"("shape":[true])"), HasSubstr("shape holds true"));
  EXPECT_THAT(tensor_refusal(R"("shape":[18446744073709551616])"),
              HasSubstr("shape holds the number 18446744073709551616"));
  EXPECT_THAT(tensor_refusal(R"("shape":[NaN])"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(tensor_refusal(R"("shape":["NaN"])"), HasSubstr(R"(shape holds the string "NaN")"));
  EXPECT_THAT(tensor_refusal(R"("shape":[1e2])"), HasSubstr("shape holds the number 1e2"));
  EXPECT_THAT(tensor_refusal(R"("shape":[1e999])"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(tensor_refusal(R"("data_offsets":[0,-9223372036854775809])"),
              HasSubstr("data_offsets holds the number -9223372036854775809"));
  EXPECT_THAT(tensor_refusal(R"("data_offsets":[-8,8])"), HasSubstr("data_offsets holds the number -8"));
  EXPECT_THAT(tensor_refusal(R"("data_offsets":[0])"), HasSubstr("data_offsets holds 1 numbers, expected 2"));
  EXPECT_THAT(tensor_refusal(R"("data_offsets":[0,4,8])"), HasSubstr("data_offsets holds more than 2"));
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_THAT(tensor_refusal("\"shape\":[" + ones + "]"), HasSubstr("shape has more than 64 sizes"));
}

TEST(Safetensors, RefusesBadSizesAndOffsets) {
  const auto with = [](const std::string& shape, const std::string& offsets) {
    return tensor_refusal(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets);
  };
  EXPECT_THAT(with("[2]", "[8,0]"), HasSubstr("begin at 8, after their end, 0"));
  EXPECT_THAT(with("[3]", "[0,12]"), HasSubstr("end at 12, past the end of the data, 8"));
  EXPECT_THAT(with("[2]", "[18446744073709551608,18446744073709551615]"),
              HasSubstr("past the end of the data"));
  EXPECT_THAT(with("[3]", "[0,8]"), HasSubstr("shape [3] of F32 takes 12 bytes, data_offsets span 8"));
  EXPECT_THAT(with("[1]", "[0,8]"), HasSubstr("takes 4 bytes, data_offsets span 8"));
  EXPECT_THAT(with("[9223372036854775807,2]", "[0,8]"),
              HasSubstr("more values than this machine can address"));
  EXPECT_THAT(with("[65536,65536,65536,65536,2]", "[0,0]"),
              HasSubstr("more values than this machine can address"));
  EXPECT_THAT(with("[4611686018427387905,1]", "[0,4]"),
              HasSubstr("more values than this machine can address"));
  EXPECT_THAT(with("[18446744073709551615,0]", "[0,0]"),
              HasSubstr("more values than this machine can address"));
  EXPECT_THAT(with("[1]", "[0,4]"), HasSubstr("end at byte 4 of the data, which has 8"));
  EXPECT_THAT(with("[1]", "[4,8]"), HasSubstr("begin at 4, with a gap after"));
}

TEST(Safetensors, RefusesOverlap) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t bytes) {
    const auto entry = [](const std::string& offsets) {
      return R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}";
    };
    return refusal(file_bytes("{\"a\":" + entry(a) + ",\"b\":" + entry(b) + "}", bytes));
  };
  EXPECT_EQ(two("[8,16]", "[0,8]", 16), "");
  EXPECT_THAT(two("[0,8]", "[4,12]", 12), HasSubstr(R"(tensor "b": data_offsets begin at 4, within)"));
  EXPECT_THAT(two("[0,8]", "[0,8]", 8), HasSubstr("begin at 0, within"));
  EXPECT_THAT(two("[0,8]", "[12,20]", 20), HasSubstr("begin at 12, with a gap"));
  EXPECT_THAT(refusal(file_bytes(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{}})", 1)),
              HasSubstr(R"(key "t" twice)"));
  EXPECT_THAT(refusal(file_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                 R"("b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                                 8)),
              HasSubstr(R"(tensor "b": data_offsets begin at 4, within)"));
}

TEST(Safetensors, LongNamesAreShortenedInErrors) {
  const std::string message = refusal(file_bytes("{\"" + std::string(100'000, 'x') + "\":{}}", 0));
  EXPECT_THAT(message, HasSubstr("xxx...\": has no dtype"));
  EXPECT_LT(message.size(), 1000u);
}

TEST(Safetensors, SurvivesRandomDamage) {
  const TemporaryFolder folder;
  const std::vector<float> values(6, 1.0f);
  const std::vector<std::int64_t> counts = {1, 2, 3};
  write_safetensors(folder.path() / "f",
                    std::array{tensor_view("w", {2, 3}, values), tensor_view("n", {3}, counts)},
                    {{"name", "x"}});
  const std::string whole = read_bytes(folder.path() / "f");

  std::mt19937 random(7);
  int refused = 0;
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    if (round % 4 == 0) damaged.resize(random() % (damaged.size() + 1));
    for (std::uint32_t i = 0; i <= random() % 3 && !damaged.empty(); ++i) {
      damaged[random() % std::min<std::size_t>(damaged.size(), 300)] = static_cast<char>(random() % 256);
    }
    const auto path = folder.write("damaged", damaged);
    try {
      // Whatever is accepted must be readable.
      const SafetensorsFile file = SafetensorsFile::open(path);
      for (const TensorView& tensor : file.tensors()) {
        std::vector<double> out(tensor.size());
        file.read(tensor.name, std::span<double>(out));
      }
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);
}

TEST(Safetensors, ReadsOnlyWhatFitsTheWantedType) {
  const TemporaryFolder folder;
  const std::vector<Eigen::bfloat16> brain = {Eigen::bfloat16(1.5f), Eigen::bfloat16(-1e30f)};
  const std::vector<double> doubles = {1.0, 2.0};
  const std::vector<std::int64_t> small = {(1 << 24), -(1 << 24)};
  const std::vector<std::int64_t> large = {0, (1 << 24) + 1};
  const std::vector<std::uint64_t> huge = {~std::uint64_t{0}, 0};
  const std::vector<std::int8_t> bytes = {-128, 127};
  write_safetensors(folder.path() / "f",
                    std::array{tensor_view("brain", {2}, brain), tensor_view("doubles", {2}, doubles),
                               tensor_view("small", {2}, small), tensor_view("large", {2}, large),
                               tensor_view("huge", {2}, huge), tensor_view("bytes", {2}, bytes)});
  const SafetensorsFile file = SafetensorsFile::open(folder.path() / "f");
  EXPECT_EQ(file.vector("brain"), Eigen::Vector2f(1.5f, static_cast<float>(brain[1])));
  EXPECT_EQ(file.vector("small"), Eigen::Vector2f(16777216, -16777216));
  EXPECT_EQ(file.vector("bytes"), Eigen::Vector2f(-128, 127));
  EXPECT_THAT(error_of([&] { file.vector("doubles"); }),
              HasSubstr(R"(tensor "doubles": is stored as F64, which cannot be read as F32 without loss)"));
  EXPECT_THAT(error_of([&] { file.vector("large"); }),
              HasSubstr("value 1 is 16777217, which F32 cannot hold"));

  std::array<std::int32_t, 2> integers{};
  file.read("large", std::span<std::int32_t>(integers));
  EXPECT_THAT(integers, ElementsAre(0, 16777217));
  EXPECT_THAT(error_of([&] { file.read("huge", std::span<std::int32_t>(integers)); }),
              HasSubstr("value 0 is 18446744073709551615, which I32 cannot hold"));
  EXPECT_THAT(error_of([&] { file.read("brain", std::span<std::int32_t>(integers)); }),
              HasSubstr("stored as BF16"));
  std::array<double, 2> wide{};
  file.read("doubles", std::span<double>(wide));
  EXPECT_THAT(wide, ElementsAre(1.0, 2.0));
  EXPECT_THAT(error_of([&] { file.read("huge", std::span<double>(wide)); }),
              HasSubstr("which F64 cannot hold"));
  std::array<double, 3> three{};
  EXPECT_THAT(error_of([&] { file.read("doubles", std::span<double>(three)); }),
              HasSubstr("has 2 values, expected 3"));
}

TEST(Safetensors, ChecksNamesShapesTypesAndAlignmentOfViews) {
  const TemporaryFolder folder;
  const auto path = folder.write("f", file_bytes(R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                 R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                                                 9));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_THAT(error_of([&] { file.tensor("absent"); }),
              HasSubstr(R"(f: has no tensor "absent"; nearest by name: "f", "u")"));
  EXPECT_THAT(error_of([&] { file.matrix("f"); }), HasSubstr("shape is [2], expected [*, *]"));
  EXPECT_THAT(error_of([&] { file.tensor("f", std::array<std::size_t, 1>{3}); }), HasSubstr("expected [3]"));
  EXPECT_THAT(error_of([&] { file.values<std::int8_t>("u"); }), HasSubstr("stored as U8, expected I8"));
  // The header has 120 bytes or not; either way one of the two does not begin at a multiple of four.
  const bool aligned = reinterpret_cast<std::uintptr_t>(file.tensor("f").bytes.data()) % 4 == 0;
  EXPECT_EQ(error_of([&] { file.values<float>("f"); }).empty(), aligned);
  EXPECT_EQ(file.vector("f").size(), 2);  // Copying does not need alignment.
  EXPECT_EQ(file.values<std::uint8_t>("u")[0], 1);
}

TEST(Safetensors, WriterRefusesWhatItCouldNotReadBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "f";
  const std::vector<float> values(6);
  const auto write = [&](std::vector<TensorView> tensors, const TensorMetadata& metadata = {}) {
    return error_of([&] { write_safetensors(path, tensors, metadata); });
  };
  EXPECT_THAT(write({tensor_view("t", {7}, values)}),
              HasSubstr("has 24 bytes, which is not shape [7] of F32"));
  EXPECT_THAT(write({tensor_view("t", {std::size_t{1} << 62, 4}, values)}), HasSubstr("has 24 bytes"));
  EXPECT_THAT(write({tensor_view("t", {6}, values), tensor_view("t", {6}, values)}),
              HasSubstr("appears twice"));
  EXPECT_THAT(write({tensor_view("__metadata__", {6}, values)}), HasSubstr("reserved"));
  EXPECT_THAT(write({tensor_view("\xff", {6}, values)}), HasSubstr("not UTF-8"));
  EXPECT_THAT(write({}, {{"key", "\xff"}}), HasSubstr("not UTF-8"));
  EXPECT_TRUE(folder.list().empty());
}

TEST(Safetensors, WriterLeavesTheOldFileWholeOnFailure) {
  const TemporaryFolder folder;
  const auto path = folder.write("f", "old");
  const std::vector<double> values(100'000);
  const auto tensors = std::array{tensor_view("t", {values.size()}, values)};

  // A limit on the size of files stands for a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {10'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { write_safetensors(path, tensors); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("f: cannot write"));
  EXPECT_EQ(read_bytes(path), "old");
  EXPECT_THAT(folder.list(), ElementsAre("f"));

  std::filesystem::create_directory(folder.path() / "folder");
  EXPECT_THAT(error_of([&] { write_safetensors(folder.path() / "folder", tensors); }),
              HasSubstr("cannot replace"));
  EXPECT_THAT(error_of([&] { write_safetensors(folder.path() / "absent" / "f", tensors); }),
              HasSubstr("cannot create"));
  EXPECT_THAT(error_of([&] { write_safetensors("", tensors); }), HasSubstr("a path that is empty"));
  EXPECT_THAT(folder.list(), ElementsAre("f", "folder"));
}

TEST(Safetensors, WriterReplacesNothingButFiles) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::vector<double> values(3);
  const auto tensors = std::array{tensor_view("t", {values.size()}, values)};
  EXPECT_THAT(error_of([&] { write_safetensors(path, tensors); }), HasSubstr("not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_THAT(folder.list(), ElementsAre("pipe"));
}

TEST(Safetensors, WriterTakesTheLongestNames) {
  const TemporaryFolder folder;
  const std::vector<double> values(3);
  const std::string name(255, 'n');
  write_safetensors(folder.path() / name, std::array{tensor_view("t", {values.size()}, values)});
  EXPECT_THAT(folder.list(), ElementsAre(name));
}

TEST(Safetensors, WriterReplacesThroughALinkAndKeepsPermissions) {
  const TemporaryFolder folder;
  const auto path = folder.write("f", "old");
  std::filesystem::permissions(path, std::filesystem::perms{0640});
  std::filesystem::create_symlink("f", folder.path() / "link");
  const std::vector<float> values(6);
  const SafetensorsFile old_reader = [&] {
    write_safetensors(folder.path() / "link", std::array{tensor_view("first", {6}, values)});
    return SafetensorsFile::open(path);
  }();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0640});

  // Who has the old file open goes on reading the old one.
  write_safetensors(path, std::array{tensor_view("second", {6}, values)});
  EXPECT_EQ(old_reader.vector("first").size(), 6);
  EXPECT_TRUE(SafetensorsFile::open(path).contains("second"));

  std::filesystem::create_symlink("nowhere", folder.path() / "dangling");
  EXPECT_THAT(error_of([&] { write_safetensors(folder.path() / "dangling", {}); }),
              HasSubstr("symbolic link"));
  EXPECT_THAT(folder.list(), ElementsAre("dangling", "f", "link"));
}

}  // namespace
}  // namespace topksoftmax
