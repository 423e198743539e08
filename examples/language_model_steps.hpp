// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lstm_model.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// The rows of a state that rows of beam search go on from.
inline LstmState select(const LstmState& state, std::span<const BeamRow> rows) {
  const auto count = static_cast<Eigen::Index>(rows.size());
  LstmState chosen = {RowMajorMatrix(count, state.hidden.cols()), RowMajorMatrix(count, state.cell.cols())};
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto parent = static_cast<Eigen::Index>(rows[static_cast<std::size_t>(i)].parent);
    chosen.hidden.row(i) = state.hidden.row(parent);
    chosen.cell.row(i) = state.cell.row(parent);
  }
  return chosen;
}

/// A language model as beam search drives it: the state of row i of a step comes from that of its parent.
class BeamReader {
 public:
  /// `state` has a row for each sentence: what the model has read before the start tokens.
  BeamReader(const LstmModel& model, LstmModel::State state) : model_(model), state_(std::move(state)) {}

  Contexts operator()(std::span<const BeamRow> rows) {
    const Stopwatch watch(seconds_);
    std::vector<TokenId> tokens;
    for (const BeamRow& row : rows) tokens.push_back(row.token);
    for (LstmState& layer : state_) layer = select(layer, rows);
    return Contexts::of(model_.read(tokens, state_));
  }

  /// Spent in the model.
  double seconds() const { return seconds_; }

 private:
  const LstmModel& model_;
  LstmModel::State state_;
  double seconds_ = 0.0;
};

/// A language model as speculative sampling drives it: it keeps the state after every token, and goes back
/// where a draft was rejected.
class TextReader {
 public:
  explicit TextReader(const LstmModel& model) : model_(model) { states_.push_back(model.start(1)); }

  /// The context [d] of the token after `tokens`, at least one; it stays until the next call.
  const float* operator()(std::span<const TokenId> tokens) {
    const Stopwatch watch(seconds_);
    const auto same = std::mismatch(read_.begin(), read_.end(), tokens.begin(), tokens.end()).first;
    auto read = static_cast<std::size_t>(same - read_.begin());
    states_.resize(read + 1, states_.front());
    read_.resize(read);
    for (; read < tokens.size(); ++read) {
      states_.push_back(states_.back());
      model_.read(tokens.subspan(read, 1), states_.back());
      read_.push_back(tokens[read]);
    }
    return states_.back().back().hidden.data();
  }

  /// Spent in the model.
  double seconds() const { return seconds_; }

 private:
  const LstmModel& model_;
  std::vector<LstmModel::State> states_;  ///< after each token, before the first at the front
  std::vector<TokenId> read_;
  double seconds_ = 0.0;
};

}  // namespace topksoftmax::examples
