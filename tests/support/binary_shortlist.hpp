// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace topksoftmax::testing {

/// Puts the checksum of a binary shortlist of Marian's right: it is at byte 8, of what is from byte 16 on.
inline std::string with_checksum(std::string file) {
  std::uint64_t sum = 0;
  for (std::size_t i = 16; i + 8 <= file.size(); i += 8) {
    std::uint64_t number = 0;
    std::memcpy(&number, file.data() + i, 8);
    sum = sum ^ (number + 0x9e3779b9U + (sum * 64) + (sum / 4));
  }
  std::memcpy(file.data() + 8, &sum, 8);
  return file;
}

/// A binary shortlist with these offsets and targets, whether they are right or not; its header counts
/// `offset_count` and `target_count`.
inline std::string binary_shortlist(std::uint64_t first, const std::vector<std::uint64_t>& offsets,
                                    const std::vector<std::uint32_t>& targets, std::uint64_t offset_count,
                                    std::uint64_t target_count) {
  const std::vector<std::uint64_t> header = {0xF11A48D5013417F5U, 0, first, 100, offset_count, target_count};
  std::string file(reinterpret_cast<const char*>(header.data()), 48);
  file.append(reinterpret_cast<const char*>(offsets.data()), offsets.size() * 8);
  file.append(reinterpret_cast<const char*>(targets.data()), targets.size() * 4);
  return with_checksum(file);
}

inline std::string binary_shortlist(std::uint64_t first, const std::vector<std::uint64_t>& offsets,
                                    const std::vector<std::uint32_t>& targets) {
  return binary_shortlist(first, offsets, targets, offsets.size(), targets.size());
}

}  // namespace topksoftmax::testing
