// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Any backend over a layer whose rows are not a model's tokens one by one: a trimmed vocabulary, as the
/// draft heads of EAGLE-3 have it, or rows that are padding and never an answer.
///
/// Ids in answers, candidates, masks and biases are the model's, and V is its number of tokens (vocab();
/// layer().vocab() counts the rows). A token without a row counts as forbidden: its logit is −∞, its bias is
/// ignored, and log Z is over the rows that are tokens. Otherwise answers are those of the backend. It is
/// built over the rows, so what it learns or is given (counts, lists) refers to rows by their numbers.
///
/// Padding rows are forbidden by a mask, so a backend answers every query as one with a mask: a learned log Z
/// holds for as few of them as OutsideMass tells (log_z_error() is nothing where they are more, or where it
/// has a usual_effort() of its own), and what
/// learns from contexts which rows are answers learns them too. Where they are the layer's last rows, leave
/// them out of it.
///
/// Effort: the backend's. Cost: the backend's query, and where there is a mask O((V + rows)/64); a batch is
/// the backend's batch.
class TOPKSOFTMAX_EXPORT MappedVocabulary final : public TopKSoftmax {
 public:
  /// token_of_row[r] is the id of row r of the backend's layer, below `vocab`, or −1 for a row that is
  /// padding. Ids must rise strictly from row to row, so that of equal logits the lower id goes first: if
  /// they do not, sort the layer's rows by their ids. Throws Error for other ids, for another number of them
  /// than there are rows, where no row is a token, and without a backend or for one that is mapped already or
  /// answers together with others (TopKSoftmax::collective).
  static std::unique_ptr<MappedVocabulary> wrap(std::shared_ptr<const TopKSoftmax> over_rows,
                                                std::vector<TokenId> token_of_row, std::size_t vocab);

  /// "mapped:" and the name of the wrapped backend.
  std::string_view name() const override { return name_; }
  std::size_t index_bytes() const override { return backend_->index_bytes() + row_map()->bytes(); }
  bool exhaustive() const override { return backend_->exhaustive(); }
  bool certifies() const override { return backend_->certifies(); }
  std::optional<LogZError> log_z_error() const override {
    if (usual_effort() != 0) return std::nullopt;  // the backend is asked with that, and knows its own
    const std::size_t padding = row_map()->token_of_row().size() - row_map()->tokens();
    return padding <= detail::few_forbidden(rows()) ? backend_->log_z_error() : std::nullopt;
  }

  /// The backend over the rows, whose ids are their numbers.
  const TopKSoftmax& wrapped() const { return *backend_; }

  /// The kind of its indexes. They have the option vocab, the tensor token_of_row [rows] (int32), and the
  /// backend's index as the part "wrapped".
  static constexpr std::string_view kind = "mapped";

  /// The backend of an index that was saved for the same layer of rows: see load_index().
  static std::unique_ptr<MappedVocabulary> load(const IndexReader& in);

 private:
  MappedVocabulary(std::shared_ptr<const TopKSoftmax> backend, std::shared_ptr<const RowMap> row_map)
      : TopKSoftmax(backend->layer(), std::move(row_map)),
        backend_(std::move(backend)),
        name_(std::string("mapped:").append(backend_->name())) {}

  static std::unique_ptr<MappedVocabulary> make(std::shared_ptr<const TopKSoftmax> backend,
                                                StoredArray<TokenId> token_of_row, std::size_t vocab);

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    ask(*backend_, query, workspace, answer);
  }
  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    ask(*backend_, batch, workspace, answers);
  }
  std::size_t answered_together() const override { return ask_together(*backend_); }
  std::size_t shared_bytes() const override { return ask_shared_bytes(*backend_); }
  std::optional<Candidates> do_candidates(const Query& query, Workspace& workspace) const override {
    return ask_candidates(*backend_, query, workspace);
  }
  const VocabularyBounds* vocabulary_bounds() const override { return ask_bounds(*backend_); }
  void do_save(IndexWriter& out) const override;

  std::shared_ptr<const TopKSoftmax> backend_;
  std::string name_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

// Of the file: the index of the wrapped backend, the map and V.
inline constexpr std::string_view kMappedPart = "wrapped";
inline constexpr std::string_view kTokenOfRow = "token_of_row";
inline constexpr std::string_view kMappedVocab = "vocab";

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::unique_ptr<MappedVocabulary> MappedVocabulary::wrap(std::shared_ptr<const TopKSoftmax> over_rows,
                                                                std::vector<TokenId> token_of_row,
                                                                std::size_t vocab) {
  if (over_rows == nullptr) throw Error("mapped: there is no backend to map the rows of");
  return make(std::move(over_rows), StoredArray<TokenId>::own(std::move(token_of_row)), vocab);
}

inline std::unique_ptr<MappedVocabulary> MappedVocabulary::make(std::shared_ptr<const TopKSoftmax> backend,
                                                                StoredArray<TokenId> token_of_row,
                                                                std::size_t vocab) {
  if (backend->row_map() != nullptr) {
    throw Error("mapped: the rows of " + std::string(backend->name()) +
                " are mapped already; map them to the model's ids at once");
  }
  if (backend->collective()) {
    throw Error("mapped: " + std::string(backend->name()) +
                " answers together with other processes; map ids around it, where it is asked");
  }
  if (token_of_row.size() != backend->layer().vocab()) {
    throw Error("mapped: there are ids for " + std::to_string(token_of_row.size()) + " rows; the layer has " +
                std::to_string(backend->layer().vocab()));
  }
  auto row_map = std::make_shared<const RowMap>(std::move(token_of_row), vocab);
  return std::unique_ptr<MappedVocabulary>(new MappedVocabulary(std::move(backend), std::move(row_map)));
}

inline void MappedVocabulary::do_save(IndexWriter& out) const {
  out.kind(MappedVocabulary::kind);
  out.option(detail::kMappedVocab, vocab());
  out.array(detail::kTokenOfRow, {layer().vocab()}, row_map()->token_of_row());
  IndexWriter wrapped = out.part(detail::kMappedPart);
  backend_->save(wrapped);
}

inline std::unique_ptr<MappedVocabulary> MappedVocabulary::load(const IndexReader& in) {
  std::size_t vocab = 0;
  in.option(detail::kMappedVocab, vocab);
  StoredArray<TokenId> token_of_row = in.array<TokenId>(detail::kTokenOfRow, {in.vocab()});
  std::shared_ptr<const TopKSoftmax> backend = in.load_part(detail::kMappedPart);
  std::unique_ptr<MappedVocabulary> loaded;
  in.check([&] { loaded = make(std::move(backend), std::move(token_of_row), vocab); });
  return loaded;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
