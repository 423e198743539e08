// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/quantized.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/estimated_candidates.hpp"
#include "screeners/prefix_store.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "quantized";
constexpr const char* kPrefixes = "prefixes";

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("refine_width", options.refine_width);
}

/// Throws Error for what cannot be built.
void check_build(const SoftmaxLayer& layer, const QuantizedOptions& options) {
  if (options.refine_width < 1) throw Error("quantized: refine_width is 0; it must be at least 1");
  if (layer.dim() > kernels::PrefixBlocks::kMaxWidth) {
    throw Error("quantized: the layer's dimension is " + std::to_string(layer.dim()) +
                "; it must be at most " + std::to_string(kernels::PrefixBlocks::kMaxWidth));
  }
}

}  // namespace

/// Whole rows as prefixes, which leave nothing out: their radii are 0.
class QuantizedRows {
 public:
  explicit QuantizedRows(const SoftmaxLayer& layer) : dim_(layer.dim()) {
    const std::size_t width = width_for(dim_);
    PrefixWriter writer(layer.vocab(), width);
    const Eigen::VectorXf b = layer.biases();
    std::vector<float> row(dim_);
    std::vector<double> values(width, 0.0);
    std::vector<std::int8_t> q(width);
    for (std::size_t token = 0; token < layer.vocab(); ++token) {
      layer.copy_row(token, row.data());
      std::copy(row.begin(), row.end(), values.begin());
      writer.put(token, b[static_cast<Eigen::Index>(token)], values, q.data());
    }
    store_ = std::move(writer).finish();
  }

  explicit QuantizedRows(const IndexReader& in)
      : dim_(in.dim()), store_(in, kPrefixes, in.vocab(), width_for(dim_)) {
    store_.check_biases(in, kPrefixes, RowOrder());
  }

  void save(IndexWriter& out) const { store_.save(out, kPrefixes); }

  std::size_t dim() const { return dim_; }
  const kernels::PrefixBlocks& blocks() const { return store_.blocks(); }

 private:
  static std::size_t width_for(std::size_t dim) { return (dim + 3) / 4 * 4; }

  std::size_t dim_;
  PrefixStore store_;
};

Candidates QuantizedScreener::screen(const Query& query, Workspace& workspace) const {
  const kernels::PrefixBlocks& blocks = rows_->blocks();
  const std::size_t wanted = std::max(query.effort != 0 ? query.effort : options_.refine_width, 2 * query.k);
  if (wanted >= blocks.rows) {
    Candidates all;
    all.everything = true;
    return all;
  }
  auto* const h = workspace.screen[0].get<float>(blocks.width);
  std::fill(std::copy_n(query.h, rows_->dim(), h), h + blocks.width, 0.0F);
  auto* const n = workspace.screen[1].get<std::int16_t>(blocks.width);
  const float scale = round_to_shorts(h, blocks.width, n);
  const std::size_t room = blocks.blocks() * kernels::PrefixBlocks::kRows;
  auto* const estimates = workspace.screen[2].get<float>(room);
  auto* const radii = workspace.screen[3].get<float>(room);
  kernels::active().prefix_bounds(blocks, {n, scale, 0.0F}, estimates, radii);
  Candidates candidates = best_estimated(query, estimates, blocks.rows, wanted, workspace);
  candidates.screened = blocks.rows;
  candidates.bytes_read = blocks.bytes();
  return candidates;
}

std::size_t QuantizedScreener::index_bytes() const {
  return rows_->blocks().bytes();
}

void QuantizedScreener::save(IndexWriter& out) const {
  out.kind(kName);
  visit_options(options_, out.options());
  rows_->save(out);
}

std::unique_ptr<Quantized> Quantized::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<Quantized> Quantized::load(const IndexReader& in) {
  QuantizedOptions options;
  visit_options(options, in.options());
  in.check([&] { check_build(in.layer(), options); });
  auto rows = std::make_shared<const QuantizedRows>(in);
  return std::unique_ptr<Quantized>(new Quantized(in.layer(), QuantizedScreener(std::move(rows), options)));
}

std::unique_ptr<Quantized> Quantized::build(SoftmaxLayer layer, const QuantizedOptions& options) {
  check_build(layer, options);
  auto rows = std::make_shared<const QuantizedRows>(layer);
  return std::unique_ptr<Quantized>(
      new Quantized(std::move(layer), QuantizedScreener(std::move(rows), options)));
}

}  // namespace topksoftmax
