// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/types.hpp"
#include "transformer_model.hpp"

namespace topksoftmax::examples {

/// A text of any length, as a model with a window reads it: whenever the window is full, the last half of
/// what it would hold is kept and read anew from its first position on.
class SlidingWindow {
 public:
  explicit SlidingWindow(const TransformerModel& model, std::size_t threads = 1)
      : model_(model), threads_(threads), state_(model.start()) {}

  /// Reads the next tokens, at least one; returns the context [d] of the token after them, which stays until
  /// the next call.
  const float* read(std::span<const TokenId> tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (text_.size() > model_.positions()) {
      const auto kept = static_cast<std::ptrdiff_t>(std::max<std::size_t>(model_.positions() / 2, 1));
      text_.erase(text_.begin(), text_.end() - kept);
      state_.read = 0;
      ++slides_;
    }
    contexts_ = model_.read(std::span(text_).subspan(state_.read), state_, threads_);
    return contexts_.row(contexts_.rows() - 1).data();
  }

  /// How often the window was full.
  std::size_t slides() const { return slides_; }

 private:
  const TransformerModel& model_;
  std::size_t threads_;
  TransformerModel::State state_;
  std::vector<TokenId> text_;  ///< what is in the window
  RowMajorMatrix contexts_;
  std::size_t slides_ = 0;
};

}  // namespace topksoftmax::examples
