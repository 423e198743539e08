// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets begin with, and what they once failed on, is kept in corpus/ and runs with the tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

#include "fuzz/targets.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax::fuzz {
namespace {

struct Target {
  std::string name;
  std::function<void(Bytes)> run;

  friend void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }
};

class FuzzCorpus : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, KeepsItsPromises) {
  std::size_t inputs = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(TOPKSOFTMAX_FUZZ_CORPUS) + "/" + GetParam().name)) {
    SCOPED_TRACE(file.path().filename());
    const std::string bytes = testing::read_bytes(file.path());
    EXPECT_NO_THROW(GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
    ++inputs;
  }
  EXPECT_GT(inputs, 0U);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus,
                         ::testing::Values(Target{"safetensors", safetensors},
                                           Target{"shard_index", shard_index},
                                           Target{"model_config", model_config}, Target{"gguf", gguf},
                                           Target{"head_file", head_file}, Target{"index_file", index_file},
                                           Target{"alignment_lists", alignment_lists},
                                           Target{"vocabulary_map", vocabulary_map},
                                           Target{"queries", queries}, Target{"kept_heads", kept_heads}),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace topksoftmax::fuzz
