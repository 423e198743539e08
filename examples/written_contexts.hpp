// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lstm_model.hpp"
#include "topksoftmax/decoding/distribution_of.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// Contexts [count×d] that the model meets while it writes, drawing every token from the full softmax: what
/// heads can learn from where there is no text. `progress` is told the share that is done.
inline RowMajorMatrix write_contexts(const LstmModel& model, Eigen::Index count,
                                     const std::function<void(double)>& progress = {}) {
  constexpr Eigen::Index streams = 256;
  RandomStream random(1);
  const Fused head(model.layer());
  LstmModel::State state = model.start(streams);
  std::vector<TokenId> tokens(streams, model.token("<eos>"));
  RowMajorMatrix contexts(count, model.dim());
  Workspace workspace;
  for (Eigen::Index filled = 0; filled < count; filled += streams) {
    if (progress) progress(static_cast<double>(filled) / static_cast<double>(count));
    const RowMajorMatrix& H = model.read(tokens, state);
    const Eigen::Index taken = std::min(streams, count - filled);
    contexts.middleRows(filled, taken) = H.topRows(taken);
    const std::span<const float> logits = head.logits_batch(H, {}, workspace);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Distribution next = distribution_of(logits.subspan(i * model.vocab(), model.vocab()), {});
      tokens[i] = next.draw(random.uniform());
    }
  }
  if (progress) progress(1.0);
  return contexts;
}

}  // namespace topksoftmax::examples
