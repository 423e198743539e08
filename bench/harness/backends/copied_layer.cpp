// SPDX-License-Identifier: Apache-2.0
#include "harness/backends/copied_layer.hpp"

#include <memory>
#include <string>
#include <utility>

#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/rows/q8_0_copy.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::bench {
namespace {

/// The fused softmax over a copy of the layer, which answers for the layer as well as the copy can.
class FusedCopy final : public TopKSoftmax {
 public:
  explicit FusedCopy(SoftmaxLayer layer)
      : TopKSoftmax(std::move(layer)),
        copy_(q8_0_copy(this->layer())),
        name_("fused:" + std::string(weight_type_name(copy_.weight_type()))) {}

  std::string_view name() const override { return name_; }
  std::size_t index_bytes() const override { return copy_.rows().row_bytes() * copy_.vocab(); }

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    answer_from_all(copy_, query, workspace, answer);
    call_approximate(answer);
  }

  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    answer_batch_from_all(copy_, batch, workspace, answers);
    for (std::size_t q = 0; q < batch.size(); ++q) call_approximate(answers[q]);
  }

  static void call_approximate(TopK& answer) {
    answer.certified = false;
    if (answer.normalizer == Normalizer::exact) answer.normalizer = Normalizer::low_rank;
  }

  SoftmaxLayer copy_;
  std::string name_;
};

}  // namespace

BackendDescription describe_copied_layer(std::string_view type) {
  if (type != copied_types) {
    throw UsageError("--as: unknown type " + std::string(type) + "; there is " + std::string(copied_types));
  }
  return {
      .name = "fused:" + std::string(type),
      .kind = {},
      .summary = "The fused softmax over a copy of the layer in ggml's Q8_0",
      .traits = {.has_index = false},
      .builder = builder<NoOptions>(
          {}, [](const BuildMaterial& from, NoOptions) { return std::make_unique<FusedCopy>(from.layer); }),
      .tuning = std::nullopt};
}

}  // namespace topksoftmax::bench
