// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A 64-bit hash of pieces of bytes, as fast as memory is read. It tells files and layers apart that differ
/// by chance, not by malice.
class ByteHash {
 public:
  /// Adds a piece; where one ends and the next begins is hashed too.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

  std::uint64_t value() const;

 private:
  /// Each takes every eighth word, so that their multiplications overlap.
  static constexpr std::size_t kLanes = 8;
  using Lanes = std::array<std::uint64_t, kLanes>;

  Lanes lanes_ = {0x9e3779b97f4a7c15U, 0xbf58476d1ce4e5b9U, 0x94d049bb133111ebU, 0xd6e8feb86659fd93U,
                  0xa0761d6478bd642fU, 0xe7037ed1a0b428dbU, 0x8ebc6af09c88c6e3U, 0x589965cc75374cc3U};
};

}  // namespace TOPKSOFTMAX_NAMESPACE
