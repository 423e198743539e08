// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A cuckoo hash table (Pagh and Rodler 2004) from keys to spans, built once: every key lies in one of two
/// slots, so a look-up probes twice at most, whether the key is there or not.
class TOPKSOFTMAX_EXPORT CuckooTable {
 public:
  /// A key, below 2³¹, and where its span lies in an array of someone else's.
  struct Entry {
    std::uint32_t key;
    std::uint32_t start;
    std::uint32_t length;
  };

  static constexpr double kDefaultLoad = 0.45;

  /// A table at most `max_load` full, 0 < max_load < 0.5: beyond one half, cuckoo hashing with two slots a
  /// key fails. Keys that push each other round in a cycle have the table rehashed with another seed, and
  /// after many of these a little enlarged. Expected cost: O(keys). Throws Error for a key that comes twice
  /// or is 2³¹ or more, and for another max_load.
  explicit CuckooTable(std::span<const Entry> entries, double max_load = kDefaultLoad);

  /// The table that had these slots and this seed. Throws Error for a number of slots that no table has.
  CuckooTable(StoredArray<Entry> slots, std::uint64_t seed);

  /// The key's entry; one of length 0 if it is absent.
  Entry find(std::uint32_t key) const {
    const Entry& entry = slots_[slot_of(key)];
    return entry.key == key ? entry : Entry{key, 0, 0};
  }

  /// The slot that `key` lies in if it is there: the first of its two, or else the second.
  std::size_t slot_of(std::uint32_t key) const {
    const auto [first, second] = slots_of(key);
    return slots_[first].key == key ? first : second;
  }

  /// The two slots that `key` may lie in: one in each half of the table.
  std::array<std::size_t, 2> slots_of(std::uint32_t key) const { return slots_of(key, seed_, slots_.size()); }

  /// An empty slot has a key of 2³¹ or more.
  std::span<const Entry> slots() const { return slots_.span(); }
  std::uint64_t seed() const { return seed_; }
  std::size_t size() const { return size_; }
  double load() const { return static_cast<double>(size_) / static_cast<double>(slots_.size()); }
  std::size_t rehashes() const { return rehashes_; }
  std::size_t bytes() const { return slots_.size() * sizeof(Entry); }

 private:
  static std::array<std::size_t, 2> slots_of(std::uint32_t key, std::uint64_t seed, std::size_t slots) {
    std::uint64_t x = key ^ seed;  // the mixing function of SplitMix64: dense keys defeat simpler ones
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
    const std::uint64_t half = slots / 2;
    return {static_cast<std::size_t>((x >> 32) * half >> 32),
            static_cast<std::size_t>(half + ((x & 0xffffffffU) * half >> 32))};
  }

  /// Puts the entries into slots by a seed; false if they go round in a cycle.
  static bool place_all(std::span<const Entry> entries, std::uint64_t seed, std::span<Entry> slots);

  StoredArray<Entry> slots_;
  std::size_t size_ = 0;
  std::size_t rehashes_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::uint32_t kNoKey = 0xffffffffU;
inline constexpr std::uint32_t kKeyLimit = std::uint32_t{1} << 31;

/// Displacements after which keys are taken to go round in a cycle.
inline constexpr std::size_t kLongestWalk = 500;
/// Seeds tried before the table grows.
inline constexpr std::size_t kRehashesPerSize = 50;
/// SplitMix64's step from one seed to the next.
inline constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15U;

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
    throw Error("cuckoo table: the key " + std::to_string(*twice) + " comes twice; keys must be distinct");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline CuckooTable::CuckooTable(std::span<const Entry> entries, double max_load) : size_(entries.size()) {
  detail::check_slots(entries, max_load);
  auto half = static_cast<std::size_t>(std::ceil(static_cast<double>(size_) / (2.0 * max_load)));
  half = std::max<std::size_t>(half, 1);
  std::vector<Entry> slots;
  const auto is_placed = [&] {
    slots.resize(2 * half);
    for (std::size_t attempt = 0; attempt < detail::kRehashesPerSize; ++attempt) {
      seed_ += detail::kSeedStep;
      if (place_all(entries, seed_, slots)) return true;
      ++rehashes_;
    }
    return false;
  };
  while (!is_placed()) half += half / 16 + 1;
  slots_ = StoredArray<Entry>::own(std::move(slots));
}

inline CuckooTable::CuckooTable(StoredArray<Entry> slots, std::uint64_t seed)
    : slots_(std::move(slots)), seed_(seed) {
  if (slots_.size() < 2 || slots_.size() % 2 != 0 || slots_.size() / 2 > std::size_t{detail::kNoKey}) {
    throw Error("cuckoo table: there are " + std::to_string(slots_.size()) +
                " slots; they must be an even number");
  }
  size_ = static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Entry& entry) { return entry.key < detail::kKeyLimit; }));
}

inline bool CuckooTable::place_all(std::span<const Entry> entries, std::uint64_t seed,
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
