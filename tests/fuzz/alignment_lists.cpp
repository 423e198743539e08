// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/shortlist/alignment_lists.hpp"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fuzz/targets.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::fuzz {

void alignment_lists(Bytes input) {
  static const std::vector<std::string> source = {"</s>", "das", "haus", "ist", "a"};
  static const std::vector<std::string> target = {"</s>", "the", "house", "is", "home", "a"};
  for (const std::size_t per_source : {0U, 1U, 3U, 100U}) {
    std::istringstream table(std::string(input.begin(), input.end()));
    try {
      const AlignmentLists lists = AlignmentLists::read(table, "table", source, target, per_source);
      require(lists.size() == source.size(), "every source token has a list");
      std::size_t bound = 0;
      for (std::size_t token = 0; token < lists.size(); ++token) {
        const auto targets = lists.targets(static_cast<TokenId>(token));
        require(targets.size() <= per_source, "a list is no longer than asked for");
        require(std::set<TokenId>(targets.begin(), targets.end()).size() == targets.size(),
                "a list has each target once");
        for (const TokenId id : targets) {
          require(id >= 0 && static_cast<std::size_t>(id) < target.size(), "targets are of the vocabulary");
          bound = std::max(bound, static_cast<std::size_t>(id) + 1);
        }
      }
      require(bound == lists.target_bound(), "target_bound is one more than the largest target");
    } catch (const Error&) {
    }
  }
}

}  // namespace topksoftmax::fuzz
