// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/screeners/wta_hash.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

class WtaIndex;

struct WtaLshEachOptions {
  /// {K, u, W}.
  WtaHashOptions hash = {};
  /// Tokens that a context's list has at most: those that share the most band codes with it. At least 1; V/10
  /// unless given.
  std::optional<std::size_t> top_collisions = std::nullopt;
};

/// Screens by winner-take-all hashes: candidates are the tokens whose rows share a context's band codes
/// most often, of equals the lower ids; none that shares no code.
class TOPKSOFTMAX_EXPORT WtaLshEachScreener {
 public:
  WtaLshEachScreener(const SoftmaxLayer& layer, const WtaLshEachOptions& options);
  /// Reads what save() has written.
  explicit WtaLshEachScreener(const IndexReader& in);

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "wta-lsh-each"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const WtaIndex> index_;
  std::size_t top_collisions_;
};

/// The per-vector form of WtaLsh, after "Deep Networks with Large Output Spaces" (Vijayanarasimhan, Shlens,
/// Monga and Yagnik, 2015): each context of a batch has a list of its own, the top collisions instead of a
/// threshold, and no frequent tokens. The hash and its index are those of WtaLsh (their tables are trees).
///
/// Effort: top_collisions; from V on every token is scored.
///
/// Cost of a query: that of a single one of WtaLsh, and log W passes over V counters.
class TOPKSOFTMAX_EXPORT WtaLshEach final : public ScreenedSoftmax<WtaLshEachScreener> {
 public:
  /// Cost: V·W·(u·K + log V). Throws Error for unusable options.
  static std::unique_ptr<WtaLshEach> build(SoftmaxLayer layer, const WtaLshEachOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<WtaLshEach> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<WtaLshEach> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
