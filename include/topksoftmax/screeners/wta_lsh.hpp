// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/screeners/wta_hash.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {

class WtaIndex;

struct WtaLshOptions {
  /// {K, u, W}.
  WtaHashOptions hash = {};
  /// t, bands in which a candidate's code is the context's: 1 … W.
  std::size_t threshold = 5;
  /// T, most frequent tokens that are candidates of every context; V/10 unless given.
  std::optional<std::size_t> top_frequent = std::nullopt;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};
};

/// Screens by winner-take-all hashes: candidates are the tokens whose rows share a context's band code in at
/// least t of W bands, and the T most frequent tokens.
class TOPKSOFTMAX_EXPORT WtaLshScreener {
 public:
  WtaLshScreener(const SoftmaxLayer& layer, const WtaLshOptions& options);
  /// Reads what save() has written.
  explicit WtaLshScreener(const IndexReader& in);

  Candidates screen(const Query& query, Workspace& workspace) const;

  /// One list for all contexts of a batch.
  struct Shared {
    Candidates candidates;               ///< the union of the contexts' lists
    std::span<const std::uint64_t> own;  ///< [batch], the number of allowed tokens in each one's list
  };

  /// For `batch` contexts at query.h, `stride` floats apart.
  Shared screen_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace) const;

  std::string_view name() const { return "wta-lsh"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const WtaIndex> index_;
  std::size_t threshold_ = 0;
  std::size_t top_frequent_ = 0;
  StoredArray<std::uint64_t> frequent_;  ///< the T most frequent tokens, a bit each
};

/// "Fast Locality Sensitive Hashing for Beam Search on GPU" (Shi, Xu and Knight), on a CPU.
///
/// Hashes (§4.2.1) compare the order of h's values with that of each row's; the bias takes no part in that,
/// so a token that lives by its bias is found by its frequency or not at all. Look-up (§4.2.2): a cuckoo
/// table a band from code to span of tokens, and a counter a token. A batch shares its candidates (equation
/// 3): they are the union of its contexts' lists, scored for all of them by one product, so a context of a
/// batch (the part of it that one thread answers) competes among at least the tokens that it has alone, and
/// perhaps more. log Z is over the candidates.
///
/// Effort e: hits asked for, counted down from W: t = W + 1 − e; from W + 1 on t = 0, which is every token.
///
/// Cost of a query: W·u·K comparisons, 2W probes, an increment for every hit (about V·W/K^u, more for
/// context and rows that are like each other), V/64 words to collect, and candidates·d weights; for a batch
/// these weights once for 16 contexts. Index: 4·W·V bytes, and 27 for every code of every band.
class TOPKSOFTMAX_EXPORT WtaLsh final : public ScreenedSoftmax<WtaLshScreener> {
 public:
  /// Cost: V·W·(u·K + log V). Throws Error for unusable options.
  static std::unique_ptr<WtaLsh> build(SoftmaxLayer layer, const WtaLshOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<WtaLsh> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<WtaLsh> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;

  void do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                      TopK* answers) const override;
};

}  // namespace topksoftmax
