// SPDX-License-Identifier: Apache-2.0
#include "shortlist/binary_shortlist.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/byte_order.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"
#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

namespace {

/// What stands first in the file. The lists follow: where each begins and the last ends, as 64-bit places
/// among the targets, then the targets, in 32 bits each.
struct Header {
  std::uint64_t magic;
  std::uint64_t checksum;  ///< of all that follows
  std::uint64_t first;     ///< how many of the first target tokens every sentence has
  std::uint64_t best;      ///< how many targets a list was cut to
  std::uint64_t offsets;   ///< one more than there are lists
  std::uint64_t targets;
};
static_assert(sizeof(Header) == 48);

/// Marian's checksum, of whole numbers of 64 bits.
std::uint64_t checksum(std::string_view bytes) {
  constexpr std::uint64_t kSpread = 0x9e3779b9;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + sizeof(sum) <= bytes.size(); i += sizeof(sum)) {
    sum ^= detail::value_at<std::uint64_t>(bytes.data() + i) + kSpread + (sum << 6) + (sum >> 2);
  }
  return sum;
}

/// The header, once the file is known to have the size that it says.
Header checked_header(std::string_view bytes, std::string_view name) {
  const auto error = [&](const std::string& what) { return Error(std::string(name) + ": " + what); };
  if (bytes.size() < sizeof(Header)) {
    throw error("has " + std::to_string(bytes.size()) + " bytes, a binary shortlist at least " +
                std::to_string(sizeof(Header)));
  }
  const auto header = detail::value_at<Header>(bytes.data());
  const std::size_t left = bytes.size() - sizeof(Header);
  const bool offsets_fit = header.offsets <= left / sizeof(std::uint64_t);
  const std::size_t left_for_targets = offsets_fit ? left - header.offsets * sizeof(std::uint64_t) : 0;
  if (!offsets_fit || left_for_targets % sizeof(std::uint32_t) != 0 ||
      header.targets != left_for_targets / sizeof(std::uint32_t)) {
    throw error("the header has " + std::to_string(header.offsets) + " offsets and " +
                std::to_string(header.targets) + " targets, which " + std::to_string(left) +
                " bytes after it are not");
  }
  const std::uint64_t sum = checksum(bytes.substr(offsetof(Header, first)));
  if (sum != header.checksum) {
    throw error("the checksum is " + std::to_string(header.checksum) + ", that of the bytes " +
                std::to_string(sum) + ": the file is damaged");
  }
  return header;
}

}  // namespace

AlignmentLists AlignmentLists::read_binary(std::string_view bytes, std::string_view name,
                                           std::size_t source_count, std::size_t target_count) {
  const auto error = [&](const std::string& what) { return Error(std::string(name) + ": " + what); };
  require_little_endian(std::string(name));
  const Header header = checked_header(bytes, name);
  if (header.offsets == 0 || header.offsets - 1 > source_count) {
    throw error("has " + std::to_string(header.offsets) +
                " offsets; there must be 1 more than lists, of which there are at most " +
                std::to_string(source_count) + ", one for a source word");
  }
  const auto offset = [&](std::size_t i) {
    return detail::value_at<std::uint64_t>(bytes.data() + sizeof(Header), i);
  };
  const std::size_t begin_of_targets = sizeof(Header) + header.offsets * sizeof(std::uint64_t);

  std::vector<std::vector<TokenId>> lists(source_count);
  std::vector<std::size_t> last_list(target_count, source_count);  // that a target was in
  for (std::size_t source = 0; source < source_count; ++source) {
    // Words behind the last list have none.
    const bool has_list = source + 1 < header.offsets;
    const std::uint64_t begin = has_list ? offset(source) : 0;
    const std::uint64_t end = has_list ? offset(source + 1) : 0;
    if (begin > end || end > header.targets) {
      throw error("list " + std::to_string(source) + " is from " + std::to_string(begin) + " to " +
                  std::to_string(end) + " of " + std::to_string(header.targets) + " targets");
    }
    for (std::uint64_t i = begin; i < end; ++i) {
      const auto target = detail::value_at<std::uint32_t>(bytes.data() + begin_of_targets, i);
      if (target >= target_count) {
        throw error("list " + std::to_string(source) + " has target " + std::to_string(target) +
                    "; the target vocabulary has " + std::to_string(target_count) + " words");
      }
      if (last_list[target] == source) continue;
      last_list[target] = source;
      lists[source].push_back(static_cast<TokenId>(target));
    }
  }
  AlignmentLists shortlist;
  shortlist.set_targets(lists);
  const std::uint64_t first = std::min<std::uint64_t>(header.first, target_count);
  for (std::uint64_t target = 0; target < first; ++target) {
    shortlist.always_.push_back(static_cast<TokenId>(target));
  }
  shortlist.widen(shortlist.always_);
  return shortlist;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
