// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certified.hpp"

#include <algorithm>
#include <limits>

#include "screeners/prefix_candidates.hpp"
#include "screeners/prefix_index.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "training/check_contexts.hpp"
#include "training/chunks.hpp"

namespace topksoftmax {
namespace {

/// The k-th best logit of rows with high estimates: the exact threshold, or just below it. −∞ if fewer than k
/// rows may be returned.
float threshold_from_best(const SoftmaxLayer& layer, const Query& query, const PrefixIndex::Bounds& bounds,
                          Workspace& workspace, std::size_t& bytes_read) {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t vocab = layer.vocab();
  const std::size_t wanted = std::min(query.k + query.k / 2 + 4, vocab);
  auto* const ids = workspace.candidates.get<TokenId>(vocab + kernels::kSlack);
  auto* const maxima = workspace.logits.get<float>(vocab / 8 + 2 * kernels::kSlack);
  const std::size_t found = kernel.promising(bounds.estimates, vocab, wanted, maxima, ids);
  if (found < query.k) return -std::numeric_limits<float>::infinity();
  const std::size_t count = std::min(found, 4 * wanted);  // equal estimates may be many
  auto* const logits = workspace.logits.get<float>(count);
  kernel.scan_gathered(layer.rows(), ids, count, query.h, logits);
  bytes_read += layer.rows().bytes(count);
  std::nth_element(logits, logits + (query.k - 1), logits + count, std::greater<>());
  return logits[query.k - 1];
}

}  // namespace

Candidates CertifiedScreener::screen(const Query& query, Workspace& workspace) const {
  if (!is_worth_bounding(query, *index_)) {
    Candidates all;
    all.everything = true;
    return all;
  }
  const PrefixIndex::Bounds bounds = index_->bound(query, workspace);
  std::size_t bytes_read = 0;
  const float threshold = bounds.usable ? threshold_from_best(layer_, query, bounds, workspace, bytes_read)
                                        : -std::numeric_limits<float>::infinity();
  Candidates candidates = candidates_reaching(threshold, layer_, *index_, query, bounds, workspace);
  candidates.bytes_read += bytes_read;
  return candidates;
}

std::size_t CertifiedScreener::index_bytes() const {
  return index_->bytes();
}

std::unique_ptr<Certified> Certified::build(SoftmaxLayer layer, const float* contexts, std::size_t count,
                                            std::size_t dim, std::size_t stride,
                                            const CertifiedOptions& options) {
  const Contexts all{contexts, count, dim, stride};
  check_contexts(layer, all, "certified");
  const RowMajorMatrix H = chunk_of(all, 0, count);
  auto index = std::make_shared<const PrefixIndex>(layer, H, options);
  return std::unique_ptr<Certified>(new Certified(std::move(layer), std::move(index)));
}

}  // namespace topksoftmax
