// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fuzz/targets.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax::fuzz {

using Words = std::vector<std::string>;

inline const Words& source_words() {
  static const Words words = {"</s>", "das", "haus", "ist", "a"};
  return words;
}
inline const Words& target_words() {
  static const Words words = {"</s>", "the", "house", "is", "home", "a"};
  return words;
}

/// Whatever lists were read from, they have each target once, and of the vocabulary.
inline void check_lists(const AlignmentLists& lists) {
  require(lists.size() == source_words().size(), "every source token has a list");
  std::size_t bound = 0;
  const auto check_list = [&](std::span<const TokenId> targets) {
    require(std::set<TokenId>(targets.begin(), targets.end()).size() == targets.size(),
            "a list has each target once");
    for (const TokenId id : targets) {
      require(id >= 0 && static_cast<std::size_t>(id) < target_words().size(),
              "targets are of the vocabulary");
      bound = std::max(bound, static_cast<std::size_t>(id) + 1);
    }
  };
  check_list(lists.always());
  std::vector<TokenId> sentence;
  for (std::size_t token = 0; token < lists.size(); ++token) {
    check_list(lists.targets(static_cast<TokenId>(token)));
    sentence.push_back(static_cast<TokenId>(token));
  }
  sentence.insert(sentence.end(), {1, 2, 3, 1, 1, 2});
  const std::vector<TokenId> all = lists.targets_of(sentence);
  check_list(all);
  require(std::is_sorted(all.begin(), all.end()), "the targets of sentences ascend");
  for (const TokenId token : sentence) {
    for (const TokenId target : lists.targets(token)) {
      require(std::binary_search(all.begin(), all.end(), target), "a sentence has the targets of its tokens");
    }
  }
  require(bound <= lists.target_bound() && lists.target_bound() <= target_words().size(),
          "target_bound is above all targets");
}

}  // namespace topksoftmax::fuzz
