// SPDX-License-Identifier: Apache-2.0
#include "io/byte_hash.hpp"

#include <bit>
#include <cstring>

#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

constexpr std::uint64_t kFactor = 0x9fb21c651e98df25U;
constexpr std::uint64_t kStep = 0x2545f4914f6cdd1dU;

/// One to one in the lane and in the word. The rotation brings high bits to where products spread them.
std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane ^ word, 29) * kFactor + kStep;
}

template <class Lanes>
void add_block(Lanes& lanes, const std::byte* block) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = mixed(lanes[i], detail::value_at<std::uint64_t>(block, i));
  }
}

}  // namespace

void ByteHash::add(std::span<const std::byte> bytes) {
  constexpr std::size_t block = kLanes * sizeof(std::uint64_t);
  Lanes lanes = lanes_;
  lanes[0] = mixed(lanes[0], bytes.size());
  std::size_t at = 0;
  for (; at + block <= bytes.size(); at += block) add_block(lanes, bytes.data() + at);
  if (at < bytes.size()) {
    std::byte rest[block] = {};
    std::memcpy(rest, bytes.data() + at, bytes.size() - at);
    add_block(lanes, rest);
  }
  lanes_ = lanes;
}

std::uint64_t ByteHash::value() const {
  std::uint64_t hash = 0;
  for (const std::uint64_t lane : lanes_) {
    hash = mixed(hash, lane);
    hash ^= hash >> 32;
  }
  hash *= kFactor;
  return hash ^ hash >> 29;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
