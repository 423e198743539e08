// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topksoftmax/screeners/cuckoo_table.hpp"
#include "topksoftmax/screeners/wta_hash.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

class IndexReader;
class IndexWriter;

/// The rows of a layer by their band codes: for every band the tokens, ordered by code, and a cuckoo table
/// from a code to the span of the tokens that have it (T_w and CuckooT_w of the paper's §4.2.2).
class WtaIndex {
 public:
  /// How often a context's codes are those of each token.
  struct Hits {
    /// L[token], the bands in which token and context have one code; zeros up to a multiple of 64.
    const std::uint16_t* of_token;
    /// Σ L: what counting cost.
    std::size_t total;
  };

  /// Cost: W·u·K comparisons and W·log V a row. Throws Error for unusable options.
  WtaIndex(const SoftmaxLayer& layer, const WtaHashOptions& options);

  /// Reads what save() has written.
  explicit WtaIndex(const IndexReader& in);
  void save(IndexWriter& out) const;

  std::size_t bands() const { return hash_.bands(); }
  std::size_t vocab() const { return vocab_; }
  /// Words of a set of tokens, a bit each.
  std::size_t mark_words() const { return (vocab_ + 63) / 64; }
  std::size_t bytes() const;

  /// Calls visit(q, hits) for each of `batch` contexts, `stride` floats apart, in their order. The hits are
  /// good until it returns. Works in Workspace::screen[0..3]. Cost of a context: W·u·K comparisons, 2W probes
  /// and Σ L increments.
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

}  // namespace topksoftmax
