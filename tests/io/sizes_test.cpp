// SPDX-License-Identifier: Apache-2.0
//
// Files made to be dear: many small things in few bytes. What reading them takes is in proportion to their
// size.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/model_config.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::GgufWriter;
using testing::memory_folder;
using testing::TemporaryFolder;

/// What takes the most of a reader in the fewest bytes: a file with n of something, and its reader.
struct Dear {
  std::string name;
  std::string file;
  std::function<std::string(std::size_t n)> write;
  std::function<void(const std::filesystem::path& path)> read;
  std::size_t most = 24;  ///< bytes of memory for a byte of the file
};

std::string with_header(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

std::string repeated(std::size_t n, const std::function<std::string(std::size_t i)>& piece,
                     const std::string& between = ",") {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += (i == 0 ? "" : between) + piece(i);
  return all;
}

std::string tensors(std::size_t n) {
  const auto one = [](std::size_t i) {
    const std::string begin = std::to_string(i);
    return "\"" + begin + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + begin + "," +
           std::to_string(i + 1) + "]}";
  };
  return with_header("{" + repeated(n, one) + "}", std::string(n, 'x'));
}

std::string metadata(std::size_t n) {
  const auto one = [](std::size_t i) { return "\"" + std::to_string(i) + R"(":"")"; };
  return with_header(R"({"__metadata__":{)" + repeated(n, one) + "}}", "");
}

std::string shapes(std::size_t n) {
  const std::string ones = repeated(64, [](std::size_t) { return "1"; });
  const auto one = [&](std::size_t i) {
    const std::string begin = std::to_string(i);
    return "\"" + begin + R"(":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[)" + begin + "," +
           std::to_string(i + 1) + "]}";
  };
  return with_header("{" + repeated(n, one) + "}", std::string(n, 'x'));
}

std::string shard_index(std::size_t n) {
  const auto one = [](std::size_t i) { return "\"" + std::to_string(i) + R"(":"s.safetensors")"; };
  return R"({"weight_map":{)" + repeated(n, one) + "}}";
}

std::string gguf_tensors(std::size_t n) {
  GgufWriter writer;
  for (std::size_t i = 0; i < n; ++i) writer.tensor_at(std::to_string(i), {}, 24, 0);
  return writer.bytes();
}

std::string gguf_metadata(std::size_t n) {
  GgufWriter writer;
  for (std::size_t i = 0; i < n; ++i) writer.value(std::to_string(i), 0, std::string(1, '\1'));
  return writer.bytes();
}

std::string gguf_texts(std::size_t n) {
  GgufWriter writer;
  writer.array("texts", 8, n,
               repeated(
                   n, [](std::size_t) { return GgufWriter::text(""); }, ""));
  return writer.bytes();
}

std::string deep(std::size_t n) {
  return R"({"a":)" + std::string(n, '[') + std::string(n, ']') + "}";
}

std::string many_values(std::size_t n) {
  return R"({"a":[)" + repeated(n, [](std::size_t) { return "0"; }) + "]}";
}

std::string alignments(std::size_t n) {
  return repeated(
      n, [](std::size_t) { return "t s 0"; }, "\n");
}

const std::vector<std::string> kWords = {"s", "t"};

std::vector<Dear> dear_files() {
  const auto open = [](const std::filesystem::path& path) { SafetensorsFile::open(path); };
  const auto open_shards = [](const std::filesystem::path& path) { SafetensorsShards::open(path); };
  const auto open_gguf = [](const std::filesystem::path& path) { GgufFile::open(path); };
  const auto read_config = [](const std::filesystem::path& path) { read_model_config(path); };
  return {{"tensors", "f.safetensors", tensors, open},
          {"metadata", "f.safetensors", metadata, open},
          {"shapes", "f.safetensors", shapes, open},
          {"tensors of shards", "model.safetensors.index.json", shard_index, open_shards},
          {"tensors of GGUF", "f.gguf", gguf_tensors, open_gguf},
          {"metadata of GGUF", "f.gguf", gguf_metadata, open_gguf},
          {"texts of GGUF", "f.gguf", gguf_texts, open_gguf},
          {"deep JSON", "config.json", deep, read_config, 48},
          {"values of JSON", "config.json", many_values, read_config, 48},
          {"alignments", "lex.s2t", alignments,
           [](const std::filesystem::path& path) { AlignmentLists::read(path, kWords, kWords); }}};
}

/// What reading a file takes.
struct Cost {
  std::size_t file = 0;
  std::size_t memory = 0;
  std::size_t allocations = 0;
};

Cost cost_of(const Dear& dear, std::size_t n) {
  const TemporaryFolder folder(memory_folder());
  Cost cost;
  {
    const std::string bytes = dear.write(n);
    cost.file = bytes.size();
    folder.write(dear.file, bytes);
  }
  const std::size_t before = testing::allocations();
  const testing::MemoryPeak peak;
  error_of([&] { dear.read(folder.path() / dear.file); });  // or a right answer
  cost.memory = peak.bytes();
  cost.allocations = testing::allocations() - before;
  return cost;
}

TEST(Sizes, MemoryIsInProportionToTheFile) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "operator new is ThreadSanitizer's";
  for (const Dear& dear : dear_files()) {
    const Cost few = cost_of(dear, 2'000);
    const Cost many = cost_of(dear, 40'000);
    SCOPED_TRACE(dear.name + ": " + std::to_string(many.file) + " bytes, " + std::to_string(many.memory) +
                 " of memory");
    EXPECT_LE(many.memory, dear.most * many.file);
    const double growth = static_cast<double>(many.file) / static_cast<double>(few.file);
    EXPECT_LE(static_cast<double>(many.memory), 2.5 * growth * static_cast<double>(few.memory) + 1e5);
    EXPECT_LE(static_cast<double>(many.allocations), 1.5 * growth * static_cast<double>(few.allocations));
  }
}

}  // namespace
}  // namespace topksoftmax
