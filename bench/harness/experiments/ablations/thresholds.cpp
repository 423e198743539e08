// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::array<std::size_t, 4> kSlices = {1, 2, 4, 8};

/// What a threshold leaves of a slice, on average over the contexts.
struct Left {
  double passing = 0.0;     ///< rows whose prefixes reach it, and whose tails are read
  double scored = 0.0;      ///< rows that reach it by these too
  double bytes_read = 0.0;  ///< for both

  void add(const detail::BoundedQuery& bounded, float threshold, double share) {
    const detail::ReachingRows rows = detail::rows_reaching(bounded, threshold);
    const detail::Survivors found = detail::survivors(bounded, rows, threshold, bounded.index.rows());
    passing += share * static_cast<double>(rows.count);
    scored += share * static_cast<double>(found.ids.size());
    bytes_read += share * static_cast<double>(rows.bytes_read + found.bytes_read +
                                              bounded.layer.rows().bytes(found.ids.size()));
  }
};

/// Certified over a slice.
struct Slice {
  Head head;
  std::unique_ptr<TopKSoftmax> system;

  const detail::CertifiedIndex& index() const {
    return static_cast<const Certified&>(*system).screener().index();
  }
};

std::vector<Slice> build_slices(const AblationRequest& request, std::size_t count) {
  const Choice certified = request.choice("certified", {});
  std::vector<Slice> slices;
  for (std::size_t s = 0; s < count; ++s) {
    const VocabularySlice rows = even_slice(request.head.layer.vocab(), s, count);
    Head part = request.head;
    part.layer = slice_of(part.layer, rows);
    part.counts = {};
    std::unique_ptr<TopKSoftmax> system = build_backend(certified, part, request.progress);
    slices.push_back({std::move(part), std::move(system)});
  }
  return slices;
}

}  // namespace

void run_thresholds_ablation(const AblationRequest& request, std::ostream& out) {
  const std::size_t k = request.measure.largest_k();
  const RowMajorMatrix contexts =
      detail::evenly_spaced(Contexts::of(request.head.test), request.measure.timed);
  const Fused fused(request.head.layer);
  Table table({"slices", "passing, own", "best slice's", "of all", "scored, own", "best slice's", "of all",
               "kB, own", "best slice's", "of all"});
  for (const std::size_t count : kSlices) {
    const std::vector<Slice> slices = build_slices(request, count);
    Left own;
    Left of_best;
    Left of_all;
    const double share = 1.0 / static_cast<double>(contexts.rows()) / static_cast<double>(count);
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      Workspace workspace;
      TopK best;
      Query query;
      query.h = contexts.row(i).data();
      query.k = k;
      query.probabilities = false;
      fused.query(query.h, request.head.layer.dim(), {.k = k}, workspace, best);
      std::vector<float> thresholds;
      for (const Slice& slice : slices) {
        const detail::ContextBounds bounds = detail::bound(slice.index(), query, workspace);
        std::size_t seeds_read = 0;
        thresholds.push_back(detail::threshold_from_best(
            {slice.head.layer, slice.index(), query, bounds, workspace}, seeds_read));
      }
      const float highest = *std::max_element(thresholds.begin(), thresholds.end());
      for (std::size_t s = 0; s < count; ++s) {
        const detail::ContextBounds bounds = detail::bound(slices[s].index(), query, workspace);
        const detail::BoundedQuery bounded = {slices[s].head.layer, slices[s].index(), query, bounds,
                                              workspace};
        own.add(bounded, thresholds[s], share);
        of_best.add(bounded, highest, share);
        of_all.add(bounded, std::max(highest, best.logits.back()), share);
      }
    }
    std::vector<std::string> cells = {std::to_string(count)};
    for (const double Left::*value : {&Left::passing, &Left::scored, &Left::bytes_read}) {
      const double unit = value == &Left::bytes_read ? 1e-3 : 1.0;
      for (const Left* const left : {&own, &of_best, &of_all})
        cells.push_back(three_digits(unit * left->*value));
    }
    table.add(std::move(cells));
  }
  out << "the " << k << " best of " << contexts.rows()
      << " test contexts; averages a slice, without the scan of its prefixes\n\n";
  table.print(out);
}

}  // namespace topksoftmax::bench
