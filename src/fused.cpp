// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fused.hpp"

#include "topksoftmax/exhaustive.hpp"

namespace topksoftmax {

void Fused::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  answer_from_all(layer(), query, workspace, answer);
}

void Fused::do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                           TopK* answers) const {
  answer_batch_from_all(layer(), query, stride, batch, workspace, answers);
}

}  // namespace topksoftmax
