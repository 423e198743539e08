// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certify.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/prefix_candidates.hpp"
#include "screeners/prefix_index.hpp"
#include "screeners/prefix_index_builder.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "training/check_contexts.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kKind = "certify";
/// The wrapped backend's index, as a part of the file.
constexpr std::string_view kWrapped = "wrapped";

/// More survivors than this speak for a poor threshold.
std::size_t tolerable(std::size_t k) {
  return 4 * k + 32;
}

/// To read the tails of a larger share of the rows costs more than to seek a better threshold.
constexpr std::size_t kTailShare = 32;

}  // namespace

Certify::Certify(std::shared_ptr<const TopKSoftmax> backend, std::shared_ptr<const PrefixIndex> index)
    : TopKSoftmax(backend->layer()),
      backend_(std::move(backend)),
      index_(std::move(index)),
      name_(std::string("certify:").append(backend_->name())) {}

std::unique_ptr<Certify> Certify::wrap(std::shared_ptr<const TopKSoftmax> backend, const Contexts& contexts,
                                       const CertifiedOptions& options) {
  if (backend == nullptr) throw Error("certify: there is no backend to wrap");
  check_contexts(backend->layer(), contexts, "certify");
  auto index = std::make_shared<const PrefixIndex>(build_prefix_index(backend->layer(), contexts, options));
  return std::unique_ptr<Certify>(new Certify(std::move(backend), std::move(index)));
}

void Certify::do_save(IndexWriter& out) const {
  out.kind(kKind);
  index_->save(out);
  IndexWriter wrapped = out.part(kWrapped);
  save_part(*backend_, wrapped);
}

std::unique_ptr<Certify> Certify::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kKind));
}

std::unique_ptr<Certify> Certify::load(const IndexReader& in) {
  std::shared_ptr<const TopKSoftmax> wrapped = load_any(in.part(kWrapped));
  return std::unique_ptr<Certify>(new Certify(std::move(wrapped), std::make_shared<const PrefixIndex>(in)));
}

std::size_t Certify::index_bytes() const {
  return backend_->index_bytes() + index_->bytes();
}

void Certify::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  if (!is_worth_bounding(query, *index_)) return answer_from_all(layer(), query, workspace, answer);
  Query proposal = query;
  proposal.probabilities = false;
  proposal.fall_back = false;           // bounds find k tokens with far less work than a scan
  TopK& proposed = workspace.proposed;  // not `answer`, which stays as it is where memory runs out below
  ask(*backend_, proposal, workspace, proposed);
  const QueryWork work = proposed.work;
  float threshold =
      proposed.size() == query.k ? proposed.logits.back() : -std::numeric_limits<float>::infinity();

  const PrefixIndex::Bounds bounds = index_->bound(query, workspace);
  Candidates candidates =
      candidates_reaching(threshold, layer(), *index_, query, bounds, index_->rows() / kTailShare, workspace);
  std::size_t bytes_read = work.bytes_read;
  if (bounds.usable && (candidates.everything || candidates.ids.size() > tolerable(query.k))) {
    // The backend found no good tokens; the estimates know better ones.
    bytes_read += candidates.bytes_read - index_->bytes_scanned();
    threshold =
        std::max(threshold, threshold_from_best(layer(), *index_, query, bounds, workspace, bytes_read));
    candidates = candidates_reaching(threshold, layer(), *index_, query, bounds, index_->rows(), workspace);
  }
  answer_from_candidates(layer(), query, candidates, workspace, answer);
  answer.work.bytes_read += bytes_read;
  answer.work.candidates += work.candidates;
  answer.work.repaired = answer.ids != proposed.ids;
}

}  // namespace topksoftmax
