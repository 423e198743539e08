// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct LshMipsOptions {
  /// Hash tables: at least 1. The more, the more candidates.
  std::size_t tables = 64;
  /// Sign projections that a table's code is made of: 1 to 24. The more, the fewer rows have one code.
  std::size_t bits = 10;
  /// Buckets of each table that a query looks into, at least 1; a query's `effort` overrides it.
  std::size_t probes = 1;
  /// Of the projections.
  std::uint64_t seed = 1;
};

class LshMipsIndex;

/// Screens by signs of random projections: candidates are the tokens that share a context's code in a table.
class TOPKSOFTMAX_EXPORT LshMipsScreener {
 public:
  explicit LshMipsScreener(std::shared_ptr<const LshMipsIndex> index) : index_(std::move(index)) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "lsh-mips"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const LshMipsIndex> index_;
};

/// "On Symmetric and Asymmetric LSHs for Inner Product Search" (Neyshabur and Srebro, ICML 2015): simple-LSH.
///
/// Rows with their biases are lifted to equal lengths (Ippt), so that the largest logit is the smallest
/// angle, and hashed by the signs of `bits` random projections in each of `tables` tables. Several probes of
/// a table go to the buckets whose codes differ where the context's projections are nearest to 0
/// (query-directed probing, Lv et al., VLDB 2007). log Z is over the candidates.
///
/// Effort: probes; from 2^bits on every token is scored.
///
/// Cost of a query: tables·bits·d multiply-adds, tables·probes buckets, and candidates·d weights. Index:
/// 4·tables·(V + 2^bits) bytes and the projections.
class TOPKSOFTMAX_EXPORT LshMips final : public ScreenedSoftmax<LshMipsScreener> {
 public:
  /// Cost: V·tables·bits·d multiply-adds. Throws Error for unusable options.
  static std::unique_ptr<LshMips> build(SoftmaxLayer layer, const LshMipsOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<LshMips> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<LshMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
