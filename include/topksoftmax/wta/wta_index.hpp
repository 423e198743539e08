// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"
#include "topksoftmax/wta/cuckoo_table.hpp"
#include "topksoftmax/wta/wta_hash.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What WtaIndex works in.
struct WtaScratch {
  ScratchBuffer codes;
  ScratchBuffer columns;  ///< contexts, transposed
  ScratchBuffer slots;
  ScratchBuffer spans;
  ScratchBuffer counts;  ///< hits of every token
  ScratchBuffer heads;   ///< the first tokens of each span
};

/// The rows of a layer by their band codes: for every band the tokens, ordered by code, and a cuckoo table
/// from a code to the span of the tokens that have it (T_w and CuckooT_w of the paper's §4.2.2).
class TOPKSOFTMAX_EXPORT WtaIndex {
 public:
  /// How often a context's codes are those of each token.
  struct Hits {
    /// L[token], the bands in which token and context have one code; zeros up to a multiple of 64.
    const std::uint16_t* of_token;
    /// Σ L: what counting cost.
    std::size_t total;
  };

  /// Cost: W·u·K comparisons and W·log V a row, in parallel. Throws Error for unusable options. Defined in
  /// wta/build_wta_index.hpp.
  TOPKSOFTMAX_BUILD_INLINE WtaIndex(const SoftmaxLayer& layer, const WtaHashOptions& options,
                                    const Executor& executor);

  /// Reads what save() has written.
  explicit WtaIndex(const IndexReader& in);
  void save(IndexWriter& out) const;

  std::size_t bands() const { return hash_.bands(); }
  std::size_t vocab() const { return vocab_; }
  /// Words of a set of tokens, a bit each.
  std::size_t mark_words() const { return (vocab_ + 63) / 64; }
  std::size_t bytes() const;

  /// Calls visit(q, hits) for each of `batch` contexts, `stride` floats apart, in their order. The hits are
  /// good until it returns. Cost of a context: W·u·K comparisons, 2W probes and Σ L increments.
  template <class Visit>
  void for_each_context(const float* contexts, std::size_t stride, std::size_t batch, Workspace& workspace,
                        const Visit& visit) const {
    constexpr std::size_t group = WtaHash::kGroup;
    for (std::size_t first = 0; first < batch; first += group) {
      const std::size_t count = batch - first < group ? batch - first : group;
      const Codes codes = hash(contexts + first * stride, stride, count, workspace);
      for (std::size_t i = 0; i < count; ++i) visit(first + i, count_hits(codes, i, workspace));
    }
  }

  /// Bytes that counting such hits reads of the index.
  std::size_t bytes_read(const Hits& hits) const {
    return hash_.bytes() + bands() * 2 * sizeof(CuckooTable::Entry) + hits.total * sizeof(TokenId);
  }

 private:
  /// Band codes of some contexts: B_w of context i at codes[w·band_stride + i·context_stride].
  struct Codes {
    const std::uint32_t* codes;
    std::size_t band_stride;
    std::size_t context_stride;
  };

  Codes hash(const float* contexts, std::size_t stride, std::size_t count, Workspace& workspace) const;
  Hits count_hits(const Codes& codes, std::size_t context, Workspace& workspace) const;

  WtaHash hash_;
  std::size_t vocab_;
  std::vector<CuckooTable> tables_;  ///< [W]
  StoredArray<TokenId> tokens_;      ///< [W×V + room], a band's ordered by code, of equal codes by id
};

inline constexpr std::size_t kWtaGroup = WtaHash::kGroup;

/// Contexts from which on hashing a whole group, one a lane, is cheaper than each alone.
inline constexpr std::size_t kWorthAGroup = 4;

/// Tokens at the beginning of a span that are counted whether there are as many or not.
inline constexpr std::size_t kSpanHead = 8;

/// Tokens that have a context's code in some band.
struct Span {
  const TokenId* tokens;
  std::size_t length;
};

inline std::size_t WtaIndex::bytes() const {
  std::size_t bytes = hash_.bytes() + tokens_.size() * sizeof(TokenId);
  for (const CuckooTable& table : tables_) bytes += sizeof(CuckooTable) + table.bytes();
  return bytes;
}

inline WtaIndex::Codes WtaIndex::hash(const float* contexts, std::size_t stride, std::size_t count,
                                      Workspace& workspace) const {
  const std::size_t bands = hash_.padded_bands();
  WtaScratch& scratch = workspace.scratch<WtaScratch>();
  auto* const codes = scratch.codes.get<std::uint32_t>(bands * kWtaGroup);
  if (count < kWorthAGroup) {
    for (std::size_t i = 0; i < count; ++i) hash_.band_codes(contexts + i * stride, codes + i * bands);
    return {codes, 1, bands};
  }
  auto* const columns = scratch.columns.get<float>(hash_.dim() * kWtaGroup);
  hash_.band_codes_batch(contexts, stride, count, columns, codes);
  return {codes, kWtaGroup, 1};
}

inline WtaIndex::Hits WtaIndex::count_hits(const Codes& codes, std::size_t context,
                                           Workspace& workspace) const {
  WtaScratch& scratch = workspace.scratch<WtaScratch>();
  const std::size_t bands = hash_.bands();
  const std::uint32_t* const of_context = codes.codes + context * codes.context_stride;
  const auto code_of = [&](std::size_t w) { return of_context[w * codes.band_stride]; };

  // Slots and spans lie all over the index: each is asked for, for all bands, before the first is used.
  auto* const slots = scratch.slots.get<const CuckooTable::Entry*>(bands);
  for (std::size_t w = 0; w < bands; ++w) {
    const CuckooTable& table = tables_[w];
    kernels::prefetch(&table.slots()[table.slots_of(code_of(w))[0]]);
  }
  for (std::size_t w = 0; w < bands; ++w) {
    slots[w] = &tables_[w].slots()[tables_[w].slot_of(code_of(w))];
    kernels::prefetch(slots[w]);
  }
  auto* const spans = scratch.spans.get<Span>(bands);
  Hits hits{nullptr, 0};
  for (std::size_t w = 0; w < bands; ++w) {
    const std::size_t length = slots[w]->key == code_of(w) ? slots[w]->length : 0;
    spans[w] = {tokens_.data() + w * vocab_ + (length == 0 ? 0 : slots[w]->start), length};
    kernels::prefetch(spans[w].tokens);
    hits.total += length;
  }

  auto* const counts = scratch.counts.get<std::uint16_t>(mark_words() * 64);
  std::fill_n(counts, mark_words() * 64, std::uint16_t{0});
  // Spans are short and of any length, which no branch predictor foresees: so their beginnings are copied one
  // behind the other, always as many tokens, and counted in one go.
  auto* const heads = scratch.heads.get<TokenId>(bands * kSpanHead);
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/wta/wta_index-inl.hpp"
#endif
