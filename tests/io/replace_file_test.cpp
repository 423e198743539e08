// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/replace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::memory_folder;
using testing::read_bytes;
using testing::TemporaryFolder;

void replace_with(const std::filesystem::path& path, std::string_view text) {
  replace_file(path, std::as_bytes(std::span(text)));
}

TEST(ReplaceFile, PutsAFileInThePlaceOfAnother) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.write("file", "old and longer");
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  std::filesystem::create_symlink("file", folder.path() / "link");
  replace_with(path, "new");
  EXPECT_EQ(read_bytes(path), "new");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
  replace_with(folder.path() / "link", "");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_bytes(path), "");
  replace_with(folder.path() / "another", "first");
  EXPECT_EQ(read_bytes(folder.path() / "another"), "first");
  EXPECT_THAT(folder.list(), ElementsAre("another", "file", "link"));
}

TEST(ReplaceFile, ABadTargetIsToldBeforeAByteIsWritten) {
  const TemporaryFolder folder(memory_folder());
  const auto kept = folder.write("kept", "old");
  std::filesystem::create_symlink(folder.path() / "absent", folder.path() / "dangling");
  std::filesystem::create_symlink(folder.path() / "loop", folder.path() / "loop");
  check_target(kept);
  check_target(folder.path() / "new");
  const auto refused = [&](const std::filesystem::path& path, const std::string& why) {
    EXPECT_THAT(error_of([&] { check_target(path); }), HasSubstr(why));
    EXPECT_THAT(error_of([&] { replace_with(path, "new"); }), HasSubstr(why));
  };
  refused(folder.path(), "cannot replace a folder");
  refused("/dev/null", "not a regular file");
  refused("", "empty");
  refused(folder.path() / "absent" / "f", "cannot create");
  refused(folder.path() / "dangling", "cannot follow");
  refused(folder.path() / "loop", "cannot follow");
  refused(folder.path() / std::string(300, 'n'), "too long");
  EXPECT_THAT(folder.list(), ElementsAre("dangling", "kept", "loop"));
  EXPECT_EQ(read_bytes(kept), "old");
}

}  // namespace
}  // namespace topksoftmax
