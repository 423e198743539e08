// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_bounds.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

class IndexWriter;

/// Finds the k most probable tokens of a softmax layer for context vectors h, with their log-probabilities.
///
/// Every backend is one. Queries are const and thread-safe (one Workspace a thread) and deterministic: the
/// higher logit first, of equal logits the lower token id, the same answer for every batch size and thread
/// count (of WtaLsh, whose contexts share candidates in query_batch(), for every thread count). A query
/// throws std::invalid_argument for an h of the wrong length or with a value that is not finite, for k = 0
/// and for unusable options, even if they would not count (the message says which); then, and when memory
/// runs out (std::bad_alloc), its outputs are as they were. Only a batch that runs out of memory may leave
/// some of its answers whole and the others as they were. Its workspaces remain usable.
class TOPKSOFTMAX_EXPORT TopKSoftmax {
 public:
  virtual ~TopKSoftmax() = default;

  /// The answer for the context h [d].
  TopK query(const ConstVector& h, const QueryOptions& options = {}) const {
    Workspace workspace;
    TopK answer;
    query(h, options, workspace, answer);
    return answer;
  }

  /// The same into `answer`. Allocates nothing once workspace and answer have served such a query.
  void query(const ConstVector& h, const QueryOptions& options, Workspace& workspace, TopK& answer) const {
    query(h.data(), static_cast<std::size_t>(h.size()), options, workspace, answer);
  }

  /// The same for a context in plain memory, `dim` floats at h.
  void query(const float* h, std::size_t dim, const QueryOptions& options, Workspace& workspace,
             TopK& answer) const {
    query({h, dim}, options, workspace, answer);
  }

  /// The same for a context in plain memory.
  void query(std::span<const float> h, const QueryOptions& options, Workspace& workspace, TopK& answer) const;

  /// The same on several threads: what the query reads is split among the executor's threads, as many as
  /// there are workspaces. The answer is bit for bit that of one thread. Worth it where a query reads
  /// megabytes; a step of it that reads less than two of Executor::grain() stays on the caller's thread.
  /// Throws std::invalid_argument also where there is no workspace.
  void query(std::span<const float> h, const QueryOptions& options, std::span<Workspace> workspaces,
             TopK& answer, const Executor& executor = default_executor()) const;

  /// The same for a vector h [d].
  void query(const ConstVector& h, const QueryOptions& options, std::span<Workspace> workspaces, TopK& answer,
             const Executor& executor = default_executor()) const {
    query(std::span(h.data(), static_cast<std::size_t>(h.size())), options, workspaces, answer, executor);
  }

  /// Answers row q of H [B×d] in answers[q], on as many of the executor's threads as there are workspaces, as
  /// query() does; WtaLsh from at least the candidates that the row has alone. Throws std::invalid_argument
  /// also where B ≠ answers.size() or there is no workspace; of no contexts, B = 0, nothing else is checked.
  void query_batch(const ConstRows& H, const QueryOptions& options, std::span<Workspace> workspaces,
                   std::span<TopK> answers, const Executor& executor = default_executor()) const {
    query_batch(H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
                static_cast<std::size_t>(H.outerStride()), options, workspaces, answers, executor);
  }

  /// The same with answers and workspaces of its own, on every thread of the executor.
  std::vector<TopK> query_batch(const ConstRows& H, const QueryOptions& options = {},
                                const Executor& executor = default_executor()) const {
    return query_batch(H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
                       static_cast<std::size_t>(H.outerStride()), options, executor);
  }

  /// The same for `batch` contexts of `dim` floats in plain memory, `stride` floats from one to the next.
  void query_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                   const QueryOptions& options, std::span<Workspace> workspaces, std::span<TopK> answers,
                   const Executor& executor = default_executor()) const;

  /// The same with answers and workspaces of its own.
  std::vector<TopK> query_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                                const QueryOptions& options = {},
                                const Executor& executor = default_executor()) const;

  /// The same into the caller's flat memory, which must have room for B answers of options.k tokens: see
  /// FlatAnswers. Where memory runs out, some of its rows may have been written.
  void query_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                   const QueryOptions& options, std::span<Workspace> workspaces, const FlatAnswers& answers,
                   const Executor& executor = default_executor()) const;

  /// Answers context q in answers[q] with options of its own, options[q], as query() does: a server's
  /// requests with their masks, penalties and k. Neighbours are answered together where the backend's batches
  /// allow it: Fused, Quantized and Certified read what they share once. Those with so few allowed tokens
  /// that these are simply scored are asked one by one, and so are all of a MappedVocabulary or a
  /// ShardedSoftmax. Throws std::invalid_argument as query() does, naming the context, and where options or
  /// answers are not as many as contexts or there is no workspace.
  void query_each(const Contexts& contexts, std::span<const QueryOptions> options,
                  std::span<Workspace> workspaces, std::span<TopK> answers,
                  const Executor& executor = default_executor()) const;

  /// The same with answers and workspaces of its own, on every thread of the executor.
  std::vector<TopK> query_each(const Contexts& contexts, std::span<const QueryOptions> options,
                               const Executor& executor = default_executor()) const;

  /// The same into the caller's flat memory, with places for the largest k of the options in every answer.
  void query_each(const Contexts& contexts, std::span<const QueryOptions> options,
                  std::span<Workspace> workspaces, const FlatAnswers& answers,
                  const Executor& executor = default_executor()) const;

  /// The logits of every token for the context h [d], mask and biases applied (−∞: forbidden): [V], in the
  /// workspace until it is used again. Bit for bit those of answers; effort and k are ignored. Reads V·d
  /// weights, whatever the backend; where a mask allows an eighth of the tokens or fewer, only theirs, unless
  /// other processes have rows of the layer (collective()).
  std::span<const float> logits(const ConstVector& h, const QueryOptions& options,
                                Workspace& workspace) const {
    return logits_batch(h.data(), 1, static_cast<std::size_t>(h.size()), static_cast<std::size_t>(h.size()),
                        options, workspace);
  }

  /// The same for the rows of H [B×d], reading the weights once: [B×V].
  std::span<const float> logits_batch(const ConstRows& H, const QueryOptions& options,
                                      Workspace& workspace) const {
    return logits_batch(H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
                        static_cast<std::size_t>(H.outerStride()), options, workspace);
  }

  /// The same for `batch` contexts of `dim` floats in plain memory, `stride` floats from one to the next.
  std::span<const float> logits_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                                      const QueryOptions& options, Workspace& workspace) const;

  /// The same on as many of the executor's threads as there are workspaces, which divide what is read; in the
  /// first workspace. Throws std::invalid_argument also where there is no workspace.
  std::span<const float> logits_batch(const Contexts& contexts, const QueryOptions& options,
                                      std::span<Workspace> workspaces,
                                      const Executor& executor = default_executor()) const;

  /// The same where each context has options of its own. Throws std::invalid_argument as query_each() does.
  std::span<const float> logits_each(const Contexts& contexts, std::span<const QueryOptions> options,
                                     std::span<Workspace> workspaces,
                                     const Executor& executor = default_executor()) const;

  /// The logits of some tokens for the context h [d], mask and biases applied (−∞: forbidden): logits[i] is
  /// that of ids[i], in any order and as often as it is named. Bit for bit those of answers; effort and k are
  /// ignored. Reads ids.size()·d weights, whatever the backend. Throws std::invalid_argument also for an id
  /// outside of the vocabulary, and unless there are as many logits as ids.
  void logits_of(std::span<const float> h, std::span<const TokenId> ids, const QueryOptions& options,
                 const Workspace& workspace, std::span<float> logits) const;

  /// The tokens that an answer for the context h, `dim` floats, would be chosen from, in the workspace until
  /// it is used again; nothing for backends that have no such list. Candidates::everything is true where the
  /// answer would be chosen from all that are allowed: because they are few, or because fewer than k of those
  /// proposed are. Candidates::outside is of allowed tokens alone. See candidates.hpp. Throws as query does.
  std::optional<Candidates> candidates(const float* h, std::size_t dim, const QueryOptions& options,
                                       Workspace& workspace) const;

  /// The layer that is answered for; of a head that answers together with others, this process's part of it.
  const SoftmaxLayer& layer() const { return layer_; }

  /// V, the number of tokens that ids, masks, biases and logits() are about: rows(), but for a
  /// MappedVocabulary, whose model may have more tokens than that.
  std::size_t vocab() const { return row_map_ ? row_map_->vocab() : rows_; }

  /// The rows of the whole layer, whichever of them are in this process.
  std::size_t rows() const { return rows_; }

  /// How many of the allowed tokens have a row, and so can be answered; `allowed` has a bit for each of the
  /// V.
  std::size_t count_allowed(const AllowedTokens& allowed) const {
    return row_map_ ? row_map_->count(allowed) : allowed.count(rows_);
  }

  /// Which token each row of the layer is; null where a token's id is the number of its row.
  const std::shared_ptr<const RowMap>& row_map() const { return row_map_; }

  /// log Z of the context h [d] from a part of the rows, within an error that the caller chooses at a
  /// confidence of 99.9 %: between an interval that is proven (QueryOptions::log_z_tolerance) and what was
  /// learned (log_z_error()). Of `options`, only the mask, the biases and same_context count. Nothing where
  /// the backend has no bounds to draw rows by; where a sample would read too many rows it reads all, V·d
  /// weights. Throws std::invalid_argument as query does, for an error that is not above 0 and a temperature
  /// out of range, and where no token is allowed.
  std::optional<SampledLogZ> sample_log_z(std::span<const float> h, const SampledLogZOptions& how,
                                          const QueryOptions& options, Workspace& workspace) const;

  /// Bounds contexts with options of their own for the questions that come: those about contexts.row(i) in
  /// own[i], with the mask and the biases of options[i] and QueryOptions::same_context, do not read again
  /// what was read here, once for all of them, on as many of the executor's threads as there are workspaces.
  /// A backend without bounds, or whose bounds lie in a cache, reads nothing here. No two of `own` may be the
  /// same, and `workspaces` may have none of them. Throws std::invalid_argument as query_each() does, and
  /// unless `own` are as many as contexts.
  void bound_each(const Contexts& contexts, std::span<const QueryOptions> options,
                  std::span<Workspace* const> own, std::span<Workspace> workspaces,
                  const Executor& executor = default_executor()) const;

  /// What the logits of some tokens for the context h [d] are proven not to exceed: bounds[i] is that of
  /// ids[i], in any order, +∞ where the backend has no bound. Of `options`, only the mask, the biases and
  /// same_context count. A backend that certifies reads nothing for it where it has just answered for h
  /// (QueryOptions::same_context). Throws std::invalid_argument as logits_of does.
  void upper_bounds(std::span<const float> h, std::span<const TokenId> ids, const QueryOptions& options,
                    Workspace& workspace, std::span<float> bounds) const;

  /// Some tokens with large logits for the context h [d], scored: about `count`, no more than four times as
  /// many, in no order, and not proven to be the best. Of `options`, only the mask, the biases and
  /// same_context count; no forbidden token is among them, and no biased one. False where the backend has no
  /// bounds, or none for h; then, and where memory runs out, nothing in `tokens` counts. Cost for a backend
  /// that certifies: what it reads to find a threshold, and the weights of these tokens. Throws
  /// std::invalid_argument as query does.
  bool likely_tokens(std::span<const float> h, std::size_t count, const QueryOptions& options,
                     Workspace& workspace, std::vector<ScoredToken>& tokens) const;

  /// All tokens whose logits for the context h [d] may reach `least`, with upper bounds: +∞ for biased ones.
  /// Of `options`, only the mask, the biases and same_context count; biased tokens are among them even where
  /// they are forbidden, no other forbidden one is. False where the backend has no bounds, none for h, or
  /// none for such a logit; then, and where memory runs out, nothing in `tokens` counts. A backend that
  /// certifies reads what its bounds read, but for the first ones where it has just made these for h
  /// (QueryOptions::same_context), and no weights. Throws std::invalid_argument as query does.
  bool tokens_reaching(std::span<const float> h, float least, const QueryOptions& options,
                       Workspace& workspace, BoundedTokens& tokens) const;

  /// Whether a nucleus for the context h [d] has a token, which is allowed and has this logit, from a part of
  /// the rows: as few as tell it at a confidence of 99.9 %, most of all near the nucleus' end. Of `options`,
  /// only the mask, the biases and same_context count. Nothing where the backend has no bounds to draw rows
  /// by; where a sample would read too many rows it reads all, V·d weights. With an error of 0 nothing is
  /// drawn: where bounds do not prove the place, it is left open. Throws std::invalid_argument as query does,
  /// for a negative error or NaN, a temperature out of range, a share that is not in (0, 1), and for an id
  /// without a row.
  std::optional<NucleusPlace> place_in_nucleus(std::span<const float> h, const ScoredToken& token,
                                               const Nucleus& nucleus, const QueryOptions& options,
                                               Workspace& workspace) const;

  /// Proven bounds of the standard deviation of the logits of all allowed tokens for the context h [d], mask
  /// and biases applied, without a scan. Of `options`, only the mask and the biases count. Nothing where the
  /// backend does not keep the covariance of the rows. Certified does, unless its d² floats are more than a
  /// quarter of W; it can tell nothing for a soft cap, where more than V/16 tokens are forbidden or biased,
  /// or where logits may leave float's range. Cost: d² multiply-adds, and the weights of these tokens. Throws
  /// std::invalid_argument as query does, and where no token is allowed.
  std::optional<LogitDeviation> logit_deviation(std::span<const float> h, const QueryOptions& options,
                                                Workspace& workspace) const;

  /// The backend's name, as the harness takes and prints it.
  virtual std::string_view name() const = 0;

  /// Bytes that the backend keeps beside the layer.
  virtual std::size_t index_bytes() const = 0;

  /// Whether every query computes all logits: then a caller that needs them all had better ask for `logits`.
  virtual bool exhaustive() const { return false; }

  /// Whether every answer is proven to be the exact top-k (TopK::certified).
  virtual bool certifies() const { return false; }

  /// Whether it answers together with other processes, each of which must ask the same (ShardedSoftmax).
  /// Nothing can be built around such a head from its layer().
  virtual bool collective() const { return false; }

  /// How far log Z is off where it was learned from contexts (Normalizer::learned, and the estimate within an
  /// interval), known before anything is asked; nothing where no answer has a learned log Z.
  virtual std::optional<LogZError> log_z_error() const { return std::nullopt; }

  /// The effort of queries that name none; 0: what the backend was built with. tune() sets the one that it
  /// has found, and an index holds it.
  std::size_t usual_effort() const { return usual_effort_; }

  /// Sets that effort. Not while another thread asks.
  void set_usual_effort(std::size_t effort) { usual_effort_ = effort; }

  /// Puts all that its load() needs beside the layer, and its usual effort, into `out`: what save_index()
  /// writes to a file. Throws Error for backends that have no index to save.
  void save(IndexWriter& out) const;

 protected:
  /// For a layer, of whose rows `row_map` names the tokens; null: row i is token i.
  explicit TopKSoftmax(SoftmaxLayer layer, std::shared_ptr<const RowMap> row_map = nullptr)
      : layer_(std::move(layer)), row_map_(std::move(row_map)), rows_(layer_.vocab()) {}
  /// For a layer of so many rows, of which `part` are in this process.
  TopKSoftmax(SoftmaxLayer part, std::size_t rows) : layer_(std::move(part)), rows_(rows) {}
  /// For those who derive from it.
  TopKSoftmax(const TopKSoftmax&) = default;
  /// For those who derive from it.
  TopKSoftmax& operator=(const TopKSoftmax&) = default;

  // Ask another backend, for those that are made of one. Ids are numbers of rows, as in every Query.
  /// The answer of `backend`.
  static void ask(const TopKSoftmax& backend, const Query& query, Workspace& workspace, TopK& answer) {
    backend.do_query(backend.as_usual(query), workspace, answer);
  }
  /// Its answers for a batch with the same options.
  static void ask(const TopKSoftmax& backend, const QueryBatch& batch, Workspace& workspace, TopK* answers) {
    const Query query = backend.as_usual(batch[0]);
    backend.do_query_batch({query, batch.stride(), batch.size()}, workspace, answers);
  }
  /// How many contexts of a batch must be asked at a time; 0: any number.
  static std::size_t ask_together(const TopKSoftmax& backend) { return backend.answered_together(); }
  /// Bytes that it reads once for a batch.
  static std::size_t ask_shared_bytes(const TopKSoftmax& backend) { return backend.shared_bytes(); }
  /// Its candidates, if it has such a list.
  static std::optional<Candidates> ask_candidates(const TopKSoftmax& backend, const Query& query,
                                                  Workspace& workspace) {
    return backend.do_candidates(backend.as_usual(query), workspace);
  }
  /// What its bounds tell; null where it has none.
  static const VocabularyBounds* ask_bounds(const TopKSoftmax& backend) {
    return backend.vocabulary_bounds();
  }

  /// Answers a batch of which nothing is shared.
  void answer_one_by_one(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
    for (std::size_t q = 0; q < batch.size(); ++q) do_query(batch[q], workspace, answers[q]);
  }

  /// What save() does. The default throws Error.
  virtual void do_save(IndexWriter& out) const;

 private:
  virtual void do_query(const Query& query, Workspace& workspace, TopK& answer) const = 0;

  /// The candidates of a query. The default has none.
  virtual std::optional<Candidates> do_candidates(const Query& query, Workspace& workspace) const;

  /// What its bounds tell beside the best tokens. The default has none.
  virtual const VocabularyBounds* vocabulary_bounds() const { return nullptr; }

  /// Answers a batch, on one thread or on the workspace's crew. The default answers one by one, and so may a
  /// backend do that shares work only among queries with the same options (QueryBatch::same_options).
  virtual void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
    answer_one_by_one(batch, workspace, answers);
  }

  /// Answers queries with the same options, by which only `allowed` tokens may be returned, so few that they
  /// are simply scored, or no more than Query::k was before it was lowered to that. The default gathers their
  /// rows from the layer.
  virtual void do_query_allowed(const QueryBatch& batch, std::size_t allowed, Workspace& workspace,
                                TopK* answers) const;

  /// The logits of all rows for contexts with the same options, edits applied: [batch × rows]. The default
  /// reads the layer.
  virtual void do_logits_batch(const QueryBatch& batch, Workspace& workspace, float* logits) const;

  /// The logits of some rows for the context h, as the layer has them. The default gathers these rows from
  /// it.
  virtual void do_logits_of(const float* h, std::span<const TokenId> rows, const Workspace& workspace,
                            std::span<float> logits) const;

  /// How many contexts of a batch do_query_batch() is handed at a time where their answers depend on each
  /// other, so that they are the same for any number of threads; 0: as many as suit the threads.
  virtual std::size_t answered_together() const { return 0; }

  /// Bytes of weights or of an index that do_query_batch() reads once for all contexts. Where they are many,
  /// it is handed a small batch whole, with a crew that divides what is read; other batches are divided among
  /// the threads by contexts.
  virtual std::size_t shared_bytes() const { return 0; }

  /// Called while an exception is handled, because a question was refused and will not come. A head that
  /// answers together with others tells them.
  virtual void do_refuse() const {}

  /// What `ask` checks and returns; where it throws, do_refuse() is told.
  template <class Ask>
  auto admit(const Ask& ask) const {
    try {
      return ask();
    } catch (...) {
      do_refuse();
      throw;
    }
  }

  /// The query with the usual effort, unless it names one.
  Query as_usual(Query query) const {
    if (query.effort == 0) query.effort = usual_effort_;
    return query;
  }

  Query check(const float* h, std::size_t dim, const QueryOptions& options) const;
  Query check_one(std::span<const float> h, const QueryOptions& options) const;
  Query check_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                    const QueryOptions& options, std::span<Workspace> workspaces) const;
  Query on_rows(Query query, Workspace& workspace) const;
  std::span<Query> check_each(const char* asked, const Contexts& contexts,
                              std::span<const QueryOptions> options, std::span<Workspace> workspaces) const;
  std::optional<std::size_t> few_allowed(const Query& query) const;
  void answer_rows(const QueryBatch& batch, Workspace& workspace, TopK* answers) const;
  void answer_chunk(const QueryBatch& batch, Workspace& workspace, TopK* answers) const;
  void answer_part(const QueryBatch& batch, Workspace& workspace, TopK* answers) const;
  void answer_all(const QueryBatch& batch, std::span<Workspace> workspaces, TopK* answers,
                  const Executor& executor) const;
  void answer_all(const QueryBatch& batch, std::span<Workspace> workspaces, const FlatAnswers& answers,
                  std::size_t places, const Executor& executor) const;
  template <class Body>
  void for_each_chunk(const Executor& executor, std::span<Workspace> workspaces, std::size_t batch,
                      const Body& body) const;
  void score_tokens(std::span<const float> h, std::span<const TokenId> ids, const Workspace& workspace,
                    std::span<float> logits) const;
  void name_candidates(Candidates& candidates, Workspace& workspace) const;

  SoftmaxLayer layer_;
  std::shared_ptr<const RowMap> row_map_;
  std::size_t rows_;
  std::size_t usual_effort_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/top_k_softmax-inl.hpp"
#include "topksoftmax/top_k_softmax_batches-inl.hpp"
#include "topksoftmax/top_k_softmax_logits-inl.hpp"
#endif
