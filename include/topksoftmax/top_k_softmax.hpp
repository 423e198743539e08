// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

// An index file being read and being written: the library's own, for its own backends.
class IndexReader;
class IndexWriter;

struct Candidates;

/// A checked query, as backends are handed it.
struct Query {
  const float* h = nullptr;   ///< the context [d], finite
  std::size_t k = 1;          ///< tokens to return: at least 1, at most V and at most the tokens allowed
  kernels::LogitEdits edits;  ///< mask and biases
  std::size_t effort = 0;     ///< QueryOptions::effort
  bool probabilities = true;  ///< whether log_z is wanted
  double log_z_tolerance = std::numeric_limits<double>::infinity();  ///< QueryOptions::log_z_tolerance
  /// Whether too few candidates mean that every token is scored. False: whoever asks is content with the
  /// fewer than k tokens, perhaps none, that there are then.
  bool fall_back = true;
};

/// Finds the k most probable tokens of a softmax layer for context vectors h, with their log-probabilities.
///
/// Every backend is one. Queries are const and thread-safe (one Workspace a thread) and deterministic: the
/// higher logit first, of equal logits the lower token id, the same answer for every batch size and thread
/// count. A query throws std::invalid_argument for an h of the wrong length or with a value that is not
/// finite, for k = 0 and for unusable options (the message says which); then, and when memory runs out
/// (std::bad_alloc), its outputs are as they were. Only a batch that memory runs out on leaves some of its
/// answers whole and the others as they were. Its workspaces serve on.
class TOPKSOFTMAX_EXPORT TopKSoftmax {
 public:
  virtual ~TopKSoftmax();

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
             TopK& answer) const;

  /// Answers row q of H [B×d] in answers[q]; one thread a workspace. Each answer is that of query() on its
  /// row. Throws std::invalid_argument also where B ≠ answers.size() or there is no workspace.
  void query_batch(const ConstRows& H, const QueryOptions& options, std::span<Workspace> workspaces,
                   std::span<TopK> answers) const {
    query_batch(H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
                static_cast<std::size_t>(H.outerStride()), options, workspaces, answers);
  }

  /// The same with answers and workspaces of its own, on every thread that OpenMP offers.
  std::vector<TopK> query_batch(const ConstRows& H, const QueryOptions& options = {}) const {
    return query_batch(H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
                       static_cast<std::size_t>(H.outerStride()), options);
  }

  /// The same for `batch` contexts of `dim` floats in plain memory, `stride` floats from one to the next.
  void query_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                   const QueryOptions& options, std::span<Workspace> workspaces,
                   std::span<TopK> answers) const;

  /// The same with answers and workspaces of its own.
  std::vector<TopK> query_batch(const float* H, std::size_t batch, std::size_t dim, std::size_t stride,
                                const QueryOptions& options = {}) const;

  /// The logits of every token for the context h [d], mask and biases applied (−∞: forbidden): [V], in the
  /// workspace until it is used again. Bit for bit those of answers; effort and k are ignored. Reads V·d
  /// weights, whatever the backend.
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

  /// The tokens that an answer for the context h, `dim` floats, would be chosen from, in the workspace until
  /// it is used again; nothing for backends that have no such list. See candidates.hpp.
  std::optional<Candidates> candidates(const float* h, std::size_t dim, const QueryOptions& options,
                                       Workspace& workspace) const;

  /// The layer that is answered for.
  const SoftmaxLayer& layer() const { return layer_; }

  /// The backend's name, as the harness takes and prints it.
  virtual std::string_view name() const = 0;

  /// Bytes that the backend keeps beside the layer.
  virtual std::size_t index_bytes() const = 0;

  /// Whether every query computes all logits: then who needs them all asks for `logits` at once.
  virtual bool exhaustive() const { return false; }

  /// Whether every answer is proven to be the exact top-k (TopK::certified).
  virtual bool certifies() const { return false; }

  /// Writes the index, without the layer, to a file that load_index() and this class's load() read: see
  /// topksoftmax/io/index_file.hpp. The file is written beside `path`, synced, and renamed: on any failure
  /// the old one stays whole. Cost: reads the layer once, to hash it. Throws Error where the file cannot be
  /// written, and for backends that have no index to save.
  void save(const std::filesystem::path& path) const;

 protected:
  explicit TopKSoftmax(SoftmaxLayer layer) : layer_(std::move(layer)) {}
  TopKSoftmax(const TopKSoftmax&) = default;
  TopKSoftmax& operator=(const TopKSoftmax&) = default;

  /// Asks another backend, for those that are made of one.
  static void ask(const TopKSoftmax& backend, const Query& query, Workspace& workspace, TopK& answer) {
    backend.do_query(query, workspace, answer);
  }

  /// Puts another backend's index into `out`, for those that are made of one.
  static void save_part(const TopKSoftmax& backend, IndexWriter& out) { backend.do_save(out); }

  /// Puts all that load_index() needs beside the layer into `out`. The default throws Error.
  virtual void do_save(IndexWriter& out) const;

 private:
  virtual void do_query(const Query& query, Workspace& workspace, TopK& answer) const = 0;

  /// The candidates of a query. The default has none.
  virtual std::optional<Candidates> do_screen(const Query& query, Workspace& workspace) const;

  /// Answers `batch` contexts at query.h, `stride` floats apart, on one thread. The default asks them one by
  /// one.
  virtual void do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                              TopK* answers) const;

  Query check(const float* h, std::size_t dim, const QueryOptions& options) const;
  void answer_chunk(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                    TopK* answers) const;

  SoftmaxLayer layer_;
};

}  // namespace topksoftmax
