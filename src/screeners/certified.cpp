// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certified.hpp"

#include <limits>

#include "screeners/prefix_candidates.hpp"
#include "screeners/prefix_index.hpp"
#include "training/check_contexts.hpp"
#include "training/chunks.hpp"

namespace topksoftmax {

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
