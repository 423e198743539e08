// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/wta/cuckoo_table.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::uint32_t kNoKey = 0xffffffffU;
inline constexpr std::uint32_t kKeyLimit = std::uint32_t{1} << 31;

/// Displacements after which keys are taken to go round in a cycle.
inline constexpr std::size_t kLongestWalk = 500;
/// Seeds tried before the table grows.
inline constexpr std::size_t kRehashesPerSize = 50;

inline void check_slots(std::span<const CuckooTable::Entry> entries, double max_load) {
  if (!(max_load > 0.0 && max_load < 0.5)) {
    throw Error("cuckoo table: max_load is " + std::to_string(max_load) +
                "; it must be above 0 and below 0.5");
  }
  std::vector<std::uint32_t> keys;
  keys.reserve(entries.size());
  for (const CuckooTable::Entry& entry : entries) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  if (!keys.empty() && keys.back() >= kKeyLimit) {
    throw Error("cuckoo table: a key is " + std::to_string(keys.back()) + "; keys must be below 2^31");
  }
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    throw Error("cuckoo table: the key " + std::to_string(*twice) + " appears twice; keys must be distinct");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE CuckooTable::CuckooTable(std::span<const Entry> entries, double max_load)
    : size_(entries.size()) {
  detail::check_slots(entries, max_load);
  auto half = static_cast<std::size_t>(std::ceil(static_cast<double>(size_) / (2.0 * max_load)));
  half = std::max<std::size_t>(half, 1);
  std::vector<Entry> slots;
  const auto is_placed = [&] {
    slots.resize(2 * half);
    for (std::size_t attempt = 0; attempt < detail::kRehashesPerSize; ++attempt) {
      seed_ += detail::SplitMix::kIncrement;
      if (place_all(entries, seed_, slots)) return true;
      ++rehashes_;
    }
    return false;
  };
  while (!is_placed()) half += half / 16 + 1;
  slots_ = StoredArray<Entry>::own(std::move(slots));
}

TOPKSOFTMAX_INLINE CuckooTable::CuckooTable(StoredArray<Entry> slots, std::uint64_t seed)
    : slots_(std::move(slots)), seed_(seed) {
  if (slots_.size() < 2 || slots_.size() % 2 != 0 || slots_.size() / 2 > std::size_t{detail::kNoKey}) {
    throw Error("cuckoo table: there are " + std::to_string(slots_.size()) +
                " slots; they must be an even number");
  }
  size_ = static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Entry& entry) { return entry.key < detail::kKeyLimit; }));
}

TOPKSOFTMAX_INLINE bool CuckooTable::place_all(std::span<const Entry> entries, std::uint64_t seed,
                                               std::span<Entry> slots) {
  std::fill(slots.begin(), slots.end(), Entry{detail::kNoKey, 0, 0});
  const auto place = [&](Entry entry) {
    std::size_t side = 0;
    for (std::size_t step = 0; step < detail::kLongestWalk; ++step, side = 1 - side) {
      std::swap(entry, slots[slots_of(entry.key, seed, slots.size())[side]]);
      if (entry.key == detail::kNoKey) return true;
    }
    return false;
  };
  return std::all_of(entries.begin(), entries.end(), place);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
