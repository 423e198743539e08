// SPDX-License-Identifier: Apache-2.0
#include "screeners/wta_index.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "topksoftmax/kernels/implementation.hpp"
#include "training/chunks.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kGroup = WtaHash::kGroup;

/// Contexts from which on hashing a whole group, one a lane, is cheaper than each alone.
constexpr std::size_t kWorthAGroup = 4;

/// Tokens at the beginning of a span that are counted whether there are as many or not.
constexpr std::size_t kSpanHead = 8;

/// Tokens that have a context's code in some band.
struct Span {
  const TokenId* tokens;
  std::size_t length;
};

/// The band's tokens in the order of their codes, and the table of the spans of equal ones. keys [V] holds
/// code and token, the code in the upper half, and is sorted.
CuckooTable make_band(std::vector<std::uint64_t>& keys, TokenId* tokens) {
  std::sort(keys.begin(), keys.end());
  std::vector<CuckooTable::Entry> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto code = static_cast<std::uint32_t>(keys[i] >> 32);
    if (entries.empty() || entries.back().key != code)
      entries.push_back({code, static_cast<std::uint32_t>(i), 0});
    ++entries.back().length;
    tokens[i] = static_cast<TokenId>(keys[i] & 0xffffffffU);
  }
  return CuckooTable(entries);
}

}  // namespace

WtaIndex::WtaIndex(const SoftmaxLayer& layer, const WtaHashOptions& options)
    : hash_(layer.dim(), options), vocab_(layer.vocab()), tokens_(hash_.bands() * vocab_ + kSpanHead) {
  // Rows in groups of 16, transposed, as the kernel takes them.
  const std::size_t dim = layer.dim();
  const std::size_t row_groups = (vocab_ + kGroup - 1) / kGroup;
  std::vector<float> columns(row_groups * dim * kGroup);
  std::vector<float> row(dim);
  for (std::size_t token = 0; token < vocab_; ++token) {
    layer.copy_row(token, row.data());
    float* const group = columns.data() + token / kGroup * dim * kGroup + token % kGroup;
    for (std::size_t j = 0; j < dim; ++j) group[j * kGroup] = row[j];
  }

  const kernels::WtaBands bands = hash_.kernel_bands();
  std::vector<std::vector<CuckooTable>> tables(bands.groups);
  for_each_part(bands.groups, 1, [&](std::size_t g, std::size_t) {
    std::vector<std::uint32_t> codes(row_groups * kGroup * kGroup);  // [row group][band][row]
    for (std::size_t r = 0; r < row_groups; ++r) {
      kernels::active().wta_codes_batch(bands.part(g, 1), columns.data() + r * dim * kGroup,
                                        codes.data() + r * kGroup * kGroup);
    }
    std::vector<std::uint64_t> keys(vocab_);
    for (std::size_t w = g * kGroup; w < std::min(hash_.bands(), (g + 1) * kGroup); ++w) {
      for (std::size_t token = 0; token < vocab_; ++token) {
        const std::uint32_t code = codes[(token / kGroup * kGroup + w % kGroup) * kGroup + token % kGroup];
        keys[token] = std::uint64_t{code} << 32 | token;
      }
      tables[g].push_back(make_band(keys, tokens_.data() + w * vocab_));
    }
  });
  tables_.reserve(hash_.bands());
  for (auto& group : tables) std::move(group.begin(), group.end(), std::back_inserter(tables_));
}

std::size_t WtaIndex::bytes() const {
  std::size_t bytes = hash_.bytes() + tokens_.size() * sizeof(TokenId);
  for (const CuckooTable& table : tables_) bytes += sizeof(CuckooTable) + table.bytes();
  return bytes;
}

WtaIndex::Codes WtaIndex::hash(const float* contexts, std::size_t stride, std::size_t count,
                               Workspace& workspace) const {
  const std::size_t bands = hash_.padded_bands();
  auto* const codes = workspace.screen[0].get<std::uint32_t>(bands * kGroup);
  if (count < kWorthAGroup) {
    for (std::size_t i = 0; i < count; ++i) hash_.band_codes(contexts + i * stride, codes + i * bands);
    return {codes, 1, bands};
  }
  auto* const columns = workspace.screen[1].get<float>(hash_.dim() * kGroup);
  hash_.band_codes_batch(contexts, stride, count, columns, codes);
  return {codes, kGroup, 1};
}

WtaIndex::Hits WtaIndex::count_hits(const Codes& codes, std::size_t context, Workspace& workspace) const {
  const std::size_t bands = hash_.bands();
  const std::uint32_t* const of_context = codes.codes + context * codes.context_stride;
  const auto code_of = [&](std::size_t w) { return of_context[w * codes.band_stride]; };

  // Slots and spans lie all over the index: each is asked for, for all bands, before the first is used.
  auto* const slots = workspace.screen[2].get<const CuckooTable::Entry*>(bands);
  for (std::size_t w = 0; w < bands; ++w) {
    const CuckooTable& table = tables_[w];
    hwy::Prefetch(&table.slots()[table.slots_of(code_of(w))[0]]);
  }
  for (std::size_t w = 0; w < bands; ++w) {
    slots[w] = &tables_[w].slots()[tables_[w].slot_of(code_of(w))];
    hwy::Prefetch(slots[w]);
  }
  auto* const spans = workspace.screen[1].get<Span>(bands);
  Hits hits{nullptr, 0};
  for (std::size_t w = 0; w < bands; ++w) {
    const std::size_t length = slots[w]->key == code_of(w) ? slots[w]->length : 0;
    spans[w] = {tokens_.data() + w * vocab_ + (length == 0 ? 0 : slots[w]->start), length};
    hwy::Prefetch(spans[w].tokens);
    hits.total += length;
  }

  auto* const counts = workspace.screen[2].get<std::uint16_t>(mark_words() * 64);
  std::fill_n(counts, mark_words() * 64, std::uint16_t{0});
  // Spans are short and of any length, which no branch predictor foresees: so their beginnings are copied one
  // behind the other, always as many tokens, and counted in one go.
  auto* const heads = workspace.screen[3].get<TokenId>(bands * kSpanHead);
  TokenId* end = heads;
  for (std::size_t w = 0; w < bands; ++w) {
    const Span span = spans[w];
    std::memcpy(end, span.tokens, kSpanHead * sizeof(TokenId));
    end += std::min(span.length, kSpanHead);
    for (std::size_t i = kSpanHead; i < span.length; ++i) ++counts[span.tokens[i]];
  }
  for (const TokenId* token = heads; token < end; ++token) ++counts[*token];
  hits.of_token = counts;
  return hits;
}

}  // namespace topksoftmax
