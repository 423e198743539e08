// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <string>

#include "fuzz/attempt.hpp"
#include "fuzz/check_lists.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax::fuzz {

void vocabulary_map(Bytes input) {
  std::istringstream map(std::string(input.begin(), input.end()));
  attempt([&] {
    const AlignmentLists lists =
        AlignmentLists::read_vocabulary_map(map, "map", source_words(), target_words());
    check_lists(lists);
    require(lists.always().size() >= 1, "every sentence may end");
  });
}

}  // namespace topksoftmax::fuzz
