// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/wta/cuckoo_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using Entry = CuckooTable::Entry;

std::vector<Entry> entries_of(const std::set<std::uint32_t>& keys) {
  std::vector<Entry> entries;
  for (const std::uint32_t key : keys) {
    const auto i = static_cast<std::uint32_t>(entries.size());
    entries.push_back({key, 10 * i, i + 1});
  }
  return entries;
}

std::set<std::uint32_t> random_keys(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::set<std::uint32_t> keys;
  while (keys.size() < count) keys.insert(static_cast<std::uint32_t>(engine() >> 1));
  return keys;
}

std::set<std::uint32_t> dense_keys(std::uint32_t count) {
  std::set<std::uint32_t> keys;
  for (std::uint32_t key = 0; key < count; ++key) keys.insert(key);
  return keys;
}

/// Every key is found, and in one of its two slots: two probes always suffice. No slot has another's key.
void expect_whole(const CuckooTable& table, const std::vector<Entry>& entries) {
  ASSERT_EQ(table.size(), entries.size());
  for (const Entry& entry : entries) {
    const Entry found = table.find(entry.key);
    ASSERT_EQ(found.start, entry.start);
    ASSERT_EQ(found.length, entry.length);
    const auto [first, second] = table.slots_of(entry.key);
    ASSERT_LT(first, table.slots().size() / 2);
    ASSERT_GE(second, table.slots().size() / 2);
    ASSERT_LT(second, table.slots().size());
    ASSERT_NE(table.slots()[first].key == entry.key, table.slots()[second].key == entry.key);
  }
  std::size_t filled = 0;
  for (const Entry& slot : table.slots()) filled += slot.length != 0;
  EXPECT_EQ(filled, entries.size());
}

TEST(CuckooTable, FindsEveryKeyAndNoOther) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 17U, 512U, 4096U}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const auto keys = random_keys(count, seed);
      const auto entries = entries_of(keys);
      const CuckooTable table(entries);
      expect_whole(table, entries);
      std::mt19937 engine(seed + 100);
      for (int n = 0; n < 2000; ++n) {
        const auto key = static_cast<std::uint32_t>(engine());
        ASSERT_EQ(table.find(key).length != 0, keys.contains(key));
      }
      EXPECT_EQ(table.find(0xffffffffU).length, 0U) << "the mark of an empty slot is no key";
    }
  }
}

TEST(CuckooTable, HoldsDenseKeys) {
  for (const std::uint32_t count : {64U, 512U, 4096U}) {
    const auto entries = entries_of(dense_keys(count));
    expect_whole(CuckooTable(entries), entries);
  }
}

TEST(CuckooTable, IsRehashedOnCyclesNearTheLimitOfLoad) {
  std::size_t rehashes = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto entries = entries_of(random_keys(500, seed));
    const CuckooTable table(entries, 0.499);
    expect_whole(table, entries);
    EXPECT_GT(table.load(), 0.43) << "it may grow, but only a little";
    EXPECT_LE(table.load(), 0.499);
    rehashes += table.rehashes();
  }
  EXPECT_GT(rehashes, 5U);
}

TEST(CuckooTable, KeepsToTheLoadAskedFor) {
  const auto entries = entries_of(random_keys(10000, 3));
  for (const double load : {0.01, 0.2, 0.4, 0.45, 0.48}) {
    const CuckooTable table(entries, load);
    expect_whole(table, entries);
    EXPECT_LE(table.load(), load);
    EXPECT_GT(table.load(), 0.9 * load);
    EXPECT_EQ(table.bytes(), table.slots().size() * sizeof(Entry));
  }
}

TEST(CuckooTable, IsTheSameForTheSameKeys) {
  const auto entries = entries_of(random_keys(300, 8));
  const CuckooTable a(entries, 0.48);
  const CuckooTable b(entries, 0.48);
  ASSERT_EQ(a.slots().size(), b.slots().size());
  for (std::size_t i = 0; i < a.slots().size(); ++i) EXPECT_EQ(a.slots()[i].key, b.slots()[i].key);
}

TEST(CuckooTable, IsTheSameFromItsSlotsAndSeed) {
  const auto entries = entries_of(random_keys(300, 8));
  const CuckooTable table(entries);
  const CuckooTable again(StoredArray<Entry>::borrow(table.slots()), table.seed());
  expect_whole(again, entries);
  EXPECT_EQ(again.size(), table.size());
  EXPECT_EQ(again.slots().data(), table.slots().data());
}

TEST(CuckooTable, RefusesSlotsThatNoTableHas) {
  for (const std::size_t slots : {0U, 1U, 7U}) {
    const std::vector<Entry> empty(slots, Entry{0xffffffffU, 0, 0});
    EXPECT_THROW(CuckooTable(StoredArray<Entry>::borrow(empty), 1), Error) << slots;
  }
}

TEST(CuckooTable, RefusesWhatItCannotHold) {
  EXPECT_THROW(CuckooTable(std::vector<Entry>{{7, 0, 1}, {3, 1, 1}, {7, 2, 1}}), Error);
  EXPECT_THROW(CuckooTable(std::vector<Entry>{{std::uint32_t{1} << 31, 0, 1}}), Error);
  const std::vector<Entry> good = {{7, 0, 1}};
  for (const double load : {0.0, -0.1, 0.5, 0.9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(CuckooTable(good, load), Error) << load;
  }
}

}  // namespace
}  // namespace topksoftmax
