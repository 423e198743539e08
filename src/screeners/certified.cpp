// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certified.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/prefix_candidates.hpp"
#include "screeners/prefix_index.hpp"
#include "screeners/prefix_index_builder.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "training/check_contexts.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "certified";

/// More rows than this that their prefixes let pass speak for a poor threshold.
std::size_t tolerable(std::size_t k) {
  return 64 + 32 * k;
}

Candidates screen_bounded(const SoftmaxLayer& layer, const PrefixIndex& index, const Query& query,
                          const PrefixIndex::Bounds& bounds, Workspace& workspace) {
  std::size_t bytes_read = 0;
  float threshold = bounds.usable ? threshold_from_best(layer, index, query, bounds, workspace, bytes_read)
                                  : -std::numeric_limits<float>::infinity();
  const bool from_few = index.has_boxes();
  Candidates candidates = candidates_reaching(threshold, layer, index, query, bounds,
                                              from_few ? tolerable(query.k) : index.rows(), workspace);
  const bool any_width = std::isinf(query.log_z_tolerance);
  if (from_few && candidates.everything && any_width && bounds.usable) {
    bytes_read += candidates.bytes_read - index.bytes_scanned();
    threshold = threshold_from_reaching(threshold, layer, index, query, bounds, workspace, bytes_read);
    candidates = candidates_reaching(threshold, layer, index, query, bounds, index.rows(), workspace);
  }
  candidates.bytes_read += bytes_read;
  return candidates;
}

}  // namespace

Candidates CertifiedScreener::screen(const Query& query, Workspace& workspace) const {
  if (!is_worth_bounding(query, *index_)) {
    Candidates all;
    all.everything = true;
    return all;
  }
  return screen_bounded(layer_, *index_, query, index_->bound(query, workspace), workspace);
}

void Certified::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  if (query.fall_back && !is_worth_bounding(query, screener().index())) {
    return answer_from_all(layer(), query, workspace, answer);
  }
  ScreenedSoftmax::do_query(query, workspace, answer);
}

void Certified::do_query_batch(const Query& query, std::size_t stride, std::size_t batch,
                               Workspace& workspace, TopK* answers) const {
  const PrefixIndex& index = screener().index();
  if (!is_worth_bounding(query, index)) {
    return answer_batch_from_all(layer(), query, stride, batch, workspace, answers);
  }
  PrefixIndex::Bounds bounds[PrefixIndex::kBatch];
  Query one = query;
  const std::size_t together = index.gains_from_batches() ? PrefixIndex::kBatch : 1;
  for (std::size_t first = 0; first < batch; first += together) {
    const std::size_t count = std::min(together, batch - first);
    index.bound_batch(one, stride, {bounds, count}, workspace);
    for (std::size_t q = 0; q < count; ++q, one.h += stride) {
      const Candidates candidates = screen_bounded(layer(), index, one, bounds[q], workspace);
      answer_from_candidates(layer(), one, candidates, workspace, answers[first + q]);
    }
  }
}

std::size_t CertifiedScreener::index_bytes() const {
  return index_->bytes();
}

void CertifiedScreener::save(IndexWriter& out) const {
  out.kind(kName);
  index_->save(out);
}

std::unique_ptr<Certified> Certified::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<Certified> Certified::load(const IndexReader& in) {
  return std::unique_ptr<Certified>(new Certified(in.layer(), std::make_shared<const PrefixIndex>(in)));
}

std::unique_ptr<Certified> Certified::build(SoftmaxLayer layer, const Contexts& contexts,
                                            const CertifiedOptions& options) {
  check_contexts(layer, contexts, "certified");
  auto index = std::make_shared<const PrefixIndex>(build_prefix_index(layer, contexts, options));
  return std::unique_ptr<Certified>(new Certified(std::move(layer), std::move(index)));
}

}  // namespace topksoftmax
