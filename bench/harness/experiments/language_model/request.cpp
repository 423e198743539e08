// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/language_model/request.hpp"

#include "written_contexts.hpp"

namespace topksoftmax::bench {

Head language_model_head(const examples::LstmModel& model, Head head, Progress& progress) {
  if (head.train.rows() != 0) return head;
  constexpr Eigen::Index count = 60000;
  head.train = examples::write_contexts(
      model, count, [&progress](double done) { progress.show("letting the model write", done); });
  return head;
}

}  // namespace topksoftmax::bench
