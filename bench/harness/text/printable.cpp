// SPDX-License-Identifier: Apache-2.0
#include "harness/text/printable.hpp"

#include <cstddef>

namespace topksoftmax::bench {
namespace {

/// How many bytes from here on are a character, in UTF-8, that would steer a terminal, or change the order
/// in which others are shown: controls (C0, DEL and C1), line separators, and bidirectional overrides. 0:
/// none.
std::size_t steering_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0U;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) return 2;
  if (byte(0) != 0xE2) return 0;
  const bool overrides = byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE;
  const bool isolates = byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9;
  return overrides || isolates ? 3 : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t steering = steering_bytes(text);
    shown += steering > 0 ? '?' : text.front();
    text.remove_prefix(steering > 0 ? steering : 1);
  }
  return shown;
}

}  // namespace topksoftmax::bench
