// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace topksoftmax::testing {

/// Appends a number, the lower bytes first.
template <class T>
void append_little_endian(std::string& file, T number) {
  for (std::size_t byte = 0; byte < sizeof(T); ++byte)
    file.push_back(static_cast<char>(number >> (8 * byte)));
}

/// Puts the checksum of a binary shortlist of Marian's right: it is at byte 8, of what is from byte 16 on.
inline std::string with_checksum(std::string file) {
  std::uint64_t sum = 0;
  for (std::size_t i = 16; i + 8 <= file.size(); i += 8) {
    std::uint64_t number = 0;
    for (std::size_t byte = 8; byte-- > 0;) number = number << 8U | static_cast<std::uint8_t>(file[i + byte]);
    sum = sum ^ (number + 0x9e3779b9U + (sum * 64) + (sum / 4));
  }
  std::string written;
  append_little_endian(written, sum);
  return file.replace(8, 8, written);
}

/// A binary shortlist with these offsets and targets, whether they are right or not; its header counts
/// `offset_count` and `target_count`.
inline std::string binary_shortlist(std::uint64_t first, const std::vector<std::uint64_t>& offsets,
                                    const std::vector<std::uint32_t>& targets, std::uint64_t offset_count,
                                    std::uint64_t target_count) {
  std::string file;
  for (const std::uint64_t number : {std::uint64_t{0xF11A48D5013417F5U}, std::uint64_t{0}, first,
                                     std::uint64_t{100}, offset_count, target_count})
    append_little_endian(file, number);
  for (const std::uint64_t offset : offsets) append_little_endian(file, offset);
  for (const std::uint32_t target : targets) append_little_endian(file, target);
  return with_checksum(file);
}

inline std::string binary_shortlist(std::uint64_t first, const std::vector<std::uint64_t>& offsets,
                                    const std::vector<std::uint32_t>& targets) {
  return binary_shortlist(first, offsets, targets, offsets.size(), targets.size());
}

}  // namespace topksoftmax::testing
