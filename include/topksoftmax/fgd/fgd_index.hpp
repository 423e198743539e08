// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/int8_rows.hpp"
#include "topksoftmax/fgd/options.hpp"
#include "topksoftmax/graph/small_world_graph.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline FgdOptions read_fgd_options(const IndexReader& in) {
  FgdOptions options;
  FgdOptions::visit_index(options, in.options());
  in.check([&] { check_fgd_options(in.layer(), options); });
  return options;
}

/// What a query walks on.
class FgdIndex {
 public:
  /// Tells `inserted` what share of the rows is in the graph. Defined in fgd/build.hpp.
  TOPKSOFTMAX_BUILD_INLINE FgdIndex(const SoftmaxLayer& layer, const FgdOptions& options,
                                    std::vector<TokenId> entries, const StepProgress& inserted);

  /// Reads what save() has written.
  explicit FgdIndex(const IndexReader& in)
      : options_(read_fgd_options(in)), graph_(in), rows_(in.layer().products()), dim_(in.dim()) {
    if (in.layer().weight_type() != WeightType::int8) rows_ = copy_.emplace(in).rows();
  }

  void save(IndexWriter& out) const {
    FgdOptions::visit_index(options_, out.options());
    graph_.save(out);
    if (copy_) copy_->save(out);
  }

  const SmallWorldGraph& graph() const { return graph_; }
  /// The rows that the search reads: the int8 copy, or the layer's own where they are int8 already.
  const kernels::Rows& rows() const { return rows_; }
  std::size_t ef_search() const { return options_.ef_search; }
  /// d.
  std::size_t dim() const { return dim_; }
  std::size_t bytes() const { return graph_.bytes() + (copy_ ? copy_->bytes() : 0); }

 private:
  FgdOptions options_;
  SmallWorldGraph graph_;
  std::optional<Int8Rows> copy_;
  kernels::Rows rows_;
  std::size_t dim_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
