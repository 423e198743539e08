// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A cuckoo hash table (Pagh and Rodler 2004) from keys to spans, built once: every key lies in one of two
/// slots, so a look-up probes twice at most, whether the key is there or not.
class TOPKSOFTMAX_EXPORT CuckooTable {
 public:
  /// A key, below 2³¹, and where its span lies in an array of someone else's.
  struct Entry {
    /// The key.
    std::uint32_t key;
    /// Where its list begins.
    std::uint32_t start;
    /// Entries of its list.
    std::uint32_t length;
  };

  /// Keys per slot that a table is built for.
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
  /// The seed of the hash functions in the end.
  std::uint64_t seed() const { return seed_; }
  /// Number of keys.
  std::size_t size() const { return size_; }
  /// Keys per slot.
  double load() const { return static_cast<double>(size_) / static_cast<double>(slots_.size()); }
  /// How often the build had to begin anew with other hash functions.
  std::size_t rehashes() const { return rehashes_; }
  /// Bytes of the table.
  std::size_t bytes() const { return slots_.size() * sizeof(Entry); }

 private:
  static std::array<std::size_t, 2> slots_of(std::uint32_t key, std::uint64_t seed, std::size_t slots) {
    const std::uint64_t x = detail::mixed(key ^ seed);  // dense keys defeat simpler functions
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

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/wta/cuckoo_table-inl.hpp"
#endif
