// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "screeners/coordinate_chooser.hpp"
#include "screeners/prefix_store.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

class IndexReader;
class IndexWriter;

/// The rows of a layer in coordinates in which few of them bound a logit well. See CertifiedScreener for the
/// proof and its symbols.
class PrefixIndex {
 public:
  /// `contexts` [N×d] may be empty.
  PrefixIndex(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const CertifiedOptions& options);

  /// Reads what save() has written.
  explicit PrefixIndex(const IndexReader& in);
  void save(IndexWriter& out) const;

  /// A query's bounds, in the workspace that they were made in.
  struct Bounds {
    float* estimates = nullptr;   ///< [V rounded up to 16]
    float* radii = nullptr;       ///< likewise
    kernels::TailContext tail{};  ///< to bound rows by all their coordinates
    bool usable = false;          ///< false: h is too short or too long to be bounded, or logits may overflow
  };

  /// Contexts that bound_batch takes at the most.
  static constexpr std::size_t kBatch = 4;
  /// Bytes of prefixes that stay in the second cache while all contexts of a batch meet them.
  static constexpr std::size_t kPartBytes = 512 * 1024;

  /// Bounds of every logit. Forbidden and biased rows get an estimate of −∞: no bound of theirs holds.
  Bounds bound(const Query& query, Workspace& workspace) const;

  /// The same for batch.size() ≤ kBatch contexts at query.h, `stride` floats apart, in one pass over the
  /// prefixes.
  void bound_batch(const Query& query, std::size_t stride, std::span<Bounds> batch,
                   Workspace& workspace) const;

  /// The rows whose logit may reach a threshold, by their prefixes and then by their tails too, ascending.
  struct Survivors {
    std::span<const TokenId> ids;
    kernels::SumBounds outside{0.0, 0.0};  ///< of Σ exp(logit − threshold) over all other rows, if asked for
    std::size_t by_tails = 0;  ///< rows that their prefixes let pass, if there are tails to ask next
    std::size_t bytes_read = 0;
  };
  /// Where their prefixes let more than `most` pass, all these, unasked by their tails.
  Survivors survivors(const Bounds& bounds, float threshold, bool sums, std::size_t most,
                      Workspace& workspace) const;

  /// Whether the prefixes are more than the second cache holds for the next context anyway.
  bool gains_from_batches() const { return prefixes_.blocks().bytes() > kPartBytes; }

  std::size_t rows() const { return prefixes_.blocks().rows; }
  std::size_t bytes() const;
  /// Bytes that bound() reads.
  std::size_t bytes_scanned() const { return prefixes_.blocks().bytes() + transform_bytes(); }

 private:
  /// What radii are made of: w'₂ with h'₂, w⊥ with h⊥, w'−ŵ with h', N with E.
  enum Term { kLonger, kOutside, kRounded, kRounding, kTerms };
  using Terms = std::array<double, kTerms>;

  /// A layer's rows in the coordinates of the index.
  struct Coordinates {
    Eigen::MatrixXd prefixes;  ///< w' [V×width]
    Eigen::VectorXd outside;   ///< ‖w⊥‖ [V]
    Eigen::VectorXd norms;     ///< ‖w‖ [V]
  };

  void use(const CoordinateBasis& basis);
  Coordinates transform_rows(const Eigen::MatrixXd& W) const;
  std::size_t choose_prefix(const SoftmaxLayer& layer, const Coordinates& rows,
                            const RowMajorMatrix& contexts, std::size_t expected_k) const;
  void store(const SoftmaxLayer& layer, const Coordinates& rows, const RowMajorMatrix& contexts,
             std::size_t prefix);

  void load_tails(const IndexReader& in);

  /// Transforms a context: coordinates [coordinate_room()], n [prefix], and what is of the context alone in
  /// its bounds.
  kernels::PrefixContext prepare(const float* h, float* coordinates, std::int16_t* n, Bounds& bounds) const;
  std::size_t coordinate_room() const;

  /// ‖h⊥‖ and the errors of a transformed context.
  Terms context_terms(const float* h, const float* projected, const float* transformed, double quantum) const;

  std::size_t dim() const { return static_cast<std::size_t>(Q_.cols()); }
  std::size_t width() const { return static_cast<std::size_t>(Q_.rows()); }
  std::size_t transform_bytes() const {
    return static_cast<std::size_t>(Q_.size() + R_.size()) * sizeof(float);
  }

  CertifiedOptions options_;      ///< with the prefix and the width that were chosen
  RowMajorMatrix Q_;              ///< [width×d]
  RowMajorMatrix R_;              ///< [width×width]
  double unorthogonality_ = 0.0;  ///< η ≥ ‖QQᵀ − I‖
  double transform_norm_ = 0.0;   ///< ‖R‖_F
  Terms prefix_weights_{};        ///< κ of the prefixes
  Terms tail_weights_{};          ///< κ of prefixes and tails
  double longest_row_ = 0.0;      ///< max ‖w‖
  double largest_bias_ = 0.0;     ///< max |b|

  PrefixStore prefixes_;
  StoredArray<std::byte> tail_bytes_;
  kernels::PrefixTails tails_;
};

}  // namespace topksoftmax
