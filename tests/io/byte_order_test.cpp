// SPDX-License-Identifier: Apache-2.0
//
// Files on big-endian machines are refused, whatever is in them; all that follows in this folder is for
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::memory_folder;
using ::testing::Not;
using testing::TemporaryFolder;

TEST(ByteOrder, BigEndianMachinesReadAndWriteNoFiles) {
  const TemporaryFolder folder(memory_folder());
  const std::filesystem::path path = folder.path() / "f";
  const std::vector<float> values(6);
  const auto head = Fused::make(testing::random_layer(4, 3, 1));
  const std::string words[] = {"one", "two"};
  const auto read = [&](const std::string& bytes) {
    folder.write("g", bytes);
    return folder.path() / "g";
  };
  const std::vector<std::string> refusals = {
      error_of([&] {
        write_safetensors(path, std::array{tensor_view("weight", {2, 3}, values)});
      }),
      error_of([&] { save_index(*head, path); }),
      error_of([&] { SafetensorsFile::open(read(std::string(64, '\0'))); }),
      error_of([&] { GgufFile::open(read("GGUF" + std::string(64, '\0'))); }), error_of([&] {
        std::istringstream in("\xf5\x17\x34\x01\xd5\x48\x1a\xf1");
        AlignmentLists::read(in, "lex.bin", words, words);
      })};
  for (const std::string& refusal : refusals) {
    if (std::endian::native == std::endian::big) {
      EXPECT_THAT(refusal, HasSubstr("this machine is big-endian; here the library works in memory alone"));
    } else {
      EXPECT_THAT(refusal, Not(HasSubstr("endian;")));
    }
  }
  if (std::endian::native == std::endian::big) {
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

}  // namespace
}  // namespace topksoftmax
