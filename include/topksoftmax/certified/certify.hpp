// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounded_softmax.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Any backend made exact, with a proof.
///
/// The wrapped backend answers first. Its k-th logit is one that k tokens reach, so every token of the exact
/// top-k does; the bounds of Certified find all that may, and these are scored. If the backend was right,
/// that is a check; if not (QueryWork::repaired), a repair. Where it finds fewer than k tokens it is not made
/// to scan the vocabulary: the estimates of Certified find others. Answers are those of Certified, bit for
/// bit but for the interval of log Z, and the wrapped backend saves it the search for a threshold: one that
/// finds a few good tokens fast is worth more here than one with long lists.
///
/// Effort: the wrapped backend's. Cost: its query, and that of CertifiedScreener less the search for a
/// threshold.
class TOPKSOFTMAX_EXPORT Certify final : public detail::BoundedSoftmax<TopKSoftmax> {
 public:
  // Defined in certified/build.hpp:

  /// For the layer of `backend`, with coordinates learned from contexts [N×d] (none: from W alone). Throws
  /// Error as Certified::build does, without a backend, and for a collective() one.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certify> wrap(
      std::shared_ptr<const TopKSoftmax> backend, const ConstRows& contexts,
      const CertifiedOptions& options = {}, const Executor& executor = default_executor());

  /// The same for contexts in plain memory.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certify> wrap(
      std::shared_ptr<const TopKSoftmax> backend, const Contexts& contexts,
      const CertifiedOptions& options = {}, const Executor& executor = default_executor());

  /// "certify:" and the name of the wrapped backend.
  std::string_view name() const override { return name_; }
  inline std::size_t index_bytes() const override;
  /// How far log Z is off where the wrapped backend finds the best tokens.
  inline std::optional<LogZError> log_z_error() const override;

  /// The backend that is asked first.
  const TopKSoftmax& wrapped() const { return *backend_; }

  /// The kind of its indexes.
  static constexpr std::string_view kind = "certify";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Certify> load(const IndexReader& in);

 private:
  Certify(std::shared_ptr<const TopKSoftmax> backend, std::shared_ptr<const detail::CertifiedIndex> index);

  inline void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  inline void do_save(IndexWriter& out) const override;
  const detail::CertifiedIndex& bounds() const override { return *index_; }

  std::shared_ptr<const TopKSoftmax> backend_;
  std::shared_ptr<const detail::CertifiedIndex> index_;
  std::string name_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the wrapped backend says.
struct CertifyScratch {
  TopK proposed;
};

/// The wrapped backend's index, as a part of the file.
inline constexpr std::string_view kWrapped = "wrapped";

/// The tokens that may be among the k best when k tokens are known to reach `threshold`, or a better one: see
/// candidates_reaching(). Adds to bytes_read what was in vain.
inline Candidates repaired_candidates(const BoundedQuery& bounded, float threshold, std::size_t& bytes_read) {
  // More survivors than this speak for a poor threshold; and to read the tails of a larger share of the rows
  // costs more than to seek a better one.
  const std::size_t tolerable = 4 * bounded.query.k + 32;
  constexpr std::size_t kTailShare = 32;
  const CertifiedIndex& index = bounded.index;
  Candidates candidates = candidates_reaching(bounded, threshold, index.rows() / kTailShare);
  if (!bounded.bounds.usable || (!candidates.everything && candidates.ids.size() <= tolerable)) {
    return candidates;
  }
  // The backend found no good tokens; the estimates know better ones.
  bytes_read += candidates.bytes_read - bounded.bounds.bytes_read;
  threshold = std::max(threshold, threshold_from_best(bounded, bytes_read));
  return candidates_reaching(bounded, threshold, index.rows());
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Certify::Certify(std::shared_ptr<const TopKSoftmax> backend,
                        std::shared_ptr<const detail::CertifiedIndex> index)
    : BoundedSoftmax(backend->layer(), backend->row_map()),
      backend_(std::move(backend)),
      index_(std::move(index)),
      name_(std::string("certify:").append(backend_->name())) {}

inline void Certify::do_save(IndexWriter& out) const {
  out.kind(Certify::kind);
  index_->save(out);
  IndexWriter wrapped = out.part(detail::kWrapped);
  backend_->save(wrapped);
}

inline std::unique_ptr<Certify> Certify::load(const IndexReader& in) {
  std::shared_ptr<const TopKSoftmax> wrapped = in.load_part(detail::kWrapped);
  return std::unique_ptr<Certify>(
      new Certify(std::move(wrapped), std::make_shared<const detail::CertifiedIndex>(in)));
}

inline std::optional<LogZError> Certify::log_z_error() const {
  return index_->outside.error();
}

inline std::size_t Certify::index_bytes() const {
  return backend_->index_bytes() + index_->bytes();
}

inline void Certify::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  if (!detail::is_worth_bounding(query, *index_)) return answer_from_all(layer(), query, workspace, answer);
  Query proposal = query;
  proposal.probabilities = false;
  proposal.fall_back = false;  // bounds find k tokens with far less work than a scan
  // Not `answer`, which stays as it is where memory runs out below.
  TopK& proposed = workspace.scratch<detail::CertifyScratch>().proposed;
  ask(*backend_, proposal, workspace, proposed);
  const QueryWork work = proposed.work;
  const float threshold = proposed.size() == query.k ? proposed.logits.back() : detail::kNoThreshold;
  std::size_t bytes_read = work.bytes_read;
  const Candidates candidates =
      detail::repaired_candidates(detail::bounded(layer(), *index_, query, workspace), threshold, bytes_read);
  answer_from_candidates(layer(), query, candidates, workspace, answer);
  answer.work.bytes_read += bytes_read;
  answer.work.candidates += work.candidates;
  answer.work.repaired = answer.ids != proposed.ids;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
