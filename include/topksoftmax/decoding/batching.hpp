// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

/// What is done with sentences, which go by their numbers 0, 1, ….
struct BatchWork {
  /// Encodes some sentences. Top-up batching calls it on a thread of its own, while others are decoded.
  std::function<void(std::span<const std::size_t> sentences)> encode;

  /// Decodes one step of every sentence of the batch and sets finished[i] where sentence i of the batch has
  /// come to its end. From one call to the next sentences leave the batch, the others keep their order, and
  /// new ones come in at its end.
  std::function<void(std::span<const std::size_t> sentences, std::span<bool> finished)> decode;

  /// Takes a finished sentence: each once, in the order of their numbers.
  std::function<void(std::size_t sentence)> emit;
};

struct BatchingOptions {
  std::size_t batch = 32;  ///< sentences that are decoded together at most, at least 1
};

struct MaxiBatchingOptions {
  std::size_t batch = 32;
  std::size_t maxi =
      320;  ///< sentences that are sorted by length before they are cut into batches, at least 1
};

struct TopUpBatchingOptions {
  std::size_t batch = 32;
  double refill_at = 0.5;   ///< the batch is refilled once it is at most so full, 0 ≤ refill_at < 1
  std::size_t encode = 32;  ///< sentences that are encoded together, at least 1
  std::size_t queue = 64;   ///< encoded sentences that wait at most, at least 1
};

/// How a run went.
struct BatchReport {
  std::vector<std::size_t> steps_at;  ///< [batch + 1], decoding steps by the size of their batch (Figure 8)
  std::size_t steps = 0;              ///< decoding steps
  std::size_t decoded = 0;            ///< sentences decoded in all steps: tokens
  std::size_t emitted = 0;            ///< sentences
  bool cancelled = false;             ///< a stop was asked for before the end

  /// Sentences a step, 0 without steps.
  double mean_batch() const {
    return steps == 0 ? 0.0 : static_cast<double>(decoded) / static_cast<double>(steps);
  }
};

/// Mini-batching: encodes a batch, decodes it to its end, and takes the next (Algorithm 4 of "Faster Neural
/// Machine Translation Inference", which also names the others).
///
/// All three: whatever is thrown in the work passes through, once no thread works any more; what was emitted
/// by then is 0, 1, … up to some sentence, each once. The same if `stop` is asked for, which takes effect
/// before the next step. Throw std::invalid_argument for unusable options.
TOPKSOFTMAX_EXPORT BatchReport mini_batching(std::size_t sentences, const BatchWork& work,
                                             const BatchingOptions& options = {}, std::stop_token stop = {});

/// Maxi-batching: sentences are sorted by length first, `maxi` at a time, so that those of a batch end at
/// about the same step. lengths[i] is that of sentence i, in whatever unit.
TOPKSOFTMAX_EXPORT BatchReport maxi_batching(std::span<const std::size_t> lengths, const BatchWork& work,
                                             const MaxiBatchingOptions& options = {},
                                             std::stop_token stop = {});

/// Top-up batching (Algorithms 5 and 6): encodes on a thread of its own into a bounded queue, and refills the
/// batch from it whenever it is at most half full. Waits for the encoder only when there is nothing to
/// decode.
TOPKSOFTMAX_EXPORT BatchReport top_up_batching(std::size_t sentences, const BatchWork& work,
                                               const TopUpBatchingOptions& options = {},
                                               std::stop_token stop = {});

}  // namespace topksoftmax
