// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/wta/cuckoo_table.hpp"
#include "topksoftmax/wta/wta_hash.hpp"
#include "topksoftmax/wta/wta_index.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline WtaHash read_hash(const IndexReader& in) {
  WtaHashOptions options;
  WtaHashOptions::visit(options, in.options());
  const StoredArray<std::int32_t> positions =
      in.array<std::int32_t>("positions", {IndexReader::any, IndexReader::any, IndexReader::any, kWtaGroup});
  std::optional<WtaHash> hash;
  in.check([&] { hash.emplace(in.dim(), options, positions); });
  return *hash;
}

TOPKSOFTMAX_INLINE WtaIndex::WtaIndex(const IndexReader& in)
    : hash_(read_hash(in)), vocab_(in.vocab()), tokens_(in.tokens("tokens", {bands() * vocab_ + kSpanHead})) {
  constexpr std::string_view name = "slots";
  const auto slots = in.array<CuckooTable::Entry>(name, {IndexReader::any, 3}, DataType::uint32);
  for (const CuckooTable::Entry& slot : slots) {
    if (slot.start > vocab_ || slot.length > vocab_ - slot.start) {
      throw in.damaged(name, "has a span of " + std::to_string(slot.length) + " from " +
                                 std::to_string(slot.start) + ", a band ends at " + std::to_string(vocab_));
    }
  }
  const StoredArray<std::uint64_t> starts = in.offsets("slot_offsets", {bands() + 1}, slots.size());
  const auto seeds = in.array<std::uint64_t>("seeds", {bands()});
  tables_.reserve(bands());
  for (std::size_t w = 0; w < bands(); ++w) {
    const auto of_band = slots.span().subspan(starts[w], starts[w + 1] - starts[w]);
    in.check([&] { tables_.emplace_back(StoredArray(of_band, slots.owner()), seeds[w]); });
  }
}

TOPKSOFTMAX_INLINE void WtaIndex::save(IndexWriter& out) const {
  WtaHashOptions::visit(hash_.options(), out.options());
  const std::size_t groups = hash_.kernel_bands().groups;
  out.array("positions", {groups, hash_.options().units_per_band, hash_.compared(), kWtaGroup},
            hash_.positions());
  out.array("tokens", {tokens_.size()}, tokens_);
  std::vector<CuckooTable::Entry> slots;
  std::vector<std::uint64_t> starts = {0};
  std::vector<std::uint64_t> seeds;
  for (const CuckooTable& table : tables_) {
    slots.insert(slots.end(), table.slots().begin(), table.slots().end());
    starts.push_back(slots.size());
    seeds.push_back(table.seed());
  }
  out.array("slots", {slots.size(), 3}, StoredArray<CuckooTable::Entry>::own(slots), DataType::uint32);
  out.array("slot_offsets", {starts.size()}, StoredArray<std::uint64_t>::own(starts));
  out.array("seeds", {seeds.size()}, StoredArray<std::uint64_t>::own(seeds));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
