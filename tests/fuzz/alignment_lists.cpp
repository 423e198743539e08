// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/shortlist/alignment_lists.hpp"

#include <sstream>
#include <string>

#include "fuzz/attempt.hpp"
#include "fuzz/check_lists.hpp"
#include "fuzz/targets.hpp"
#include "support/binary_shortlist.hpp"

namespace topksoftmax::fuzz {
namespace {

AlignmentLists read(const std::string& bytes, std::size_t per_source) {
  std::istringstream table(bytes);
  return AlignmentLists::read(table, "table", source_words(), target_words(), per_source);
}

}  // namespace

void alignment_lists(Bytes input) {
  const std::string bytes(input.begin(), input.end());
  for (const std::size_t per_source : {0U, 1U, 3U, 100U}) {
    attempt([&] {
      const AlignmentLists lists = read(bytes, per_source);
      check_lists(lists);
      if (bytes.starts_with('\xf5')) return;  // perhaps binary, with lists as long as they were made
      for (std::size_t token = 0; token < lists.size(); ++token) {
        require(lists.targets(static_cast<TokenId>(token)).size() <= per_source,
                "a list is no longer than asked for");
      }
    });
  }
  // No mutation finds the checksum.
  if (bytes.starts_with('\xf5') && bytes.size() >= 16) {
    attempt([&] { check_lists(read(testing::with_checksum(bytes), 100)); });
  }
}

}  // namespace topksoftmax::fuzz
