// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax {

/// Any backend made exact, with a proof.
///
/// The wrapped backend answers first. Its k-th logit is one that k tokens reach, so every token of the exact
/// top-k does; the bounds of Certified find all that may, and these are scored. If the backend was right,
/// that is a check; if not (QueryWork::repaired), a repair. Where it finds fewer than k tokens it is not made
/// to scan the vocabulary: the estimates of Certified find others. Answers are those of Certified, bit for
/// bit but for the interval of log Z, and the wrapped backend saves it the search for a threshold: one that
/// finds a few good tokens fast is worth more here than one with long lists.
///
/// Effort: the wrapped backend's. Cost: its query, V·(prefix + 8) bytes of prefixes, and what survives them.
class TOPKSOFTMAX_EXPORT Certify final : public TopKSoftmax {
 public:
  /// For the layer of `backend`, with coordinates learned from contexts [N×d] (none: from W alone). Throws
  /// Error as Certified::build does, and without a backend.
  static std::unique_ptr<Certify> wrap(std::shared_ptr<const TopKSoftmax> backend, const Contexts& contexts,
                                       const CertifiedOptions& options = {});

  static std::unique_ptr<Certify> wrap(std::shared_ptr<const TopKSoftmax> backend, const ConstRows& contexts,
                                       const CertifiedOptions& options = {}) {
    return wrap(std::move(backend), Contexts::of(contexts), options);
  }

  /// "certify:" and the name of the wrapped backend.
  std::string_view name() const override { return name_; }
  std::size_t index_bytes() const override;
  bool certifies() const override { return true; }

  const TopKSoftmax& wrapped() const { return *backend_; }

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Certify> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<Certify> load(const IndexReader& in);

 private:
  Certify(std::shared_ptr<const TopKSoftmax> backend, std::shared_ptr<const PrefixIndex> index);

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_save(IndexWriter& out) const override;

  std::shared_ptr<const TopKSoftmax> backend_;
  std::shared_ptr<const PrefixIndex> index_;
  std::string name_;
};

}  // namespace topksoftmax
