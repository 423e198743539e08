// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/bounded_queue.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What is done with sentences. They are known by their numbers 0, 1, ….
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

/// Options of mini-batching.
struct BatchingOptions {
  std::size_t batch = 32;  ///< sentences that are decoded together at most, at least 1
};

/// Options of maxi-batching.
struct MaxiBatchingOptions {
  /// Sentences that are decoded together at most, at least 1.
  std::size_t batch = 32;
  /// Sentences that are sorted by length before they are cut into batches, at least 1.
  std::size_t maxi = 320;
};

/// Options of top-up batching.
struct TopUpBatchingOptions {
  /// Sentences that are decoded together at most, at least 1.
  std::size_t batch = 32;
  double refill_at = 0.5;   ///< the batch is refilled once it is at most so full, 0 ≤ refill_at < 1
  std::size_t encode = 32;  ///< sentences that are encoded together, at least 1
  std::size_t queue = 64;   ///< encoded sentences that wait at most, at least 1
};

/// What a run did.
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
BatchReport mini_batching(std::size_t sentences, const BatchWork& work, const BatchingOptions& options = {},
                          std::stop_token stop = {});

/// Maxi-batching: sentences are sorted by length first, `maxi` at a time, so that those of a batch end at
/// about the same step. lengths[i] is that of sentence i, in whatever unit.
BatchReport maxi_batching(std::span<const std::size_t> lengths, const BatchWork& work,
                          const MaxiBatchingOptions& options = {}, std::stop_token stop = {});

/// Top-up batching (Algorithms 5 and 6): encodes on a thread of its own into a bounded queue, and refills the
/// batch from it whenever no more of it is left than refill_at allows. Waits for the encoder only when there
/// is nothing to decode.
BatchReport top_up_batching(std::size_t sentences, const BatchWork& work,
                            const TopUpBatchingOptions& options = {}, std::stop_token stop = {});

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline void require_positive(std::size_t value, const char* name) {
  if (value == 0)
    throw std::invalid_argument(std::string("batching: ") + name + " is 0; it must be at least 1");
}

/// The batch in work, and what goes out of it in order.
class Decoder {
 public:
  Decoder(std::size_t sentences, const BatchWork& work, std::size_t batch)
      : work_(work), finished_(std::make_unique<bool[]>(batch)), done_(sentences, false) {
    report_.steps_at.resize(batch + 1);
  }

  std::vector<std::size_t>& batch() { return batch_; }

  /// One step of every sentence of the batch; those that end leave it.
  void step() {
    const std::span<bool> finished(finished_.get(), batch_.size());
    std::fill(finished.begin(), finished.end(), false);
    work_.decode(batch_, finished);
    ++report_.steps;
    ++report_.steps_at[batch_.size()];
    report_.decoded += batch_.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      if (finished[i]) {
        done_[batch_[i]] = true;
      } else {
        batch_[kept++] = batch_[i];
      }
    }
    batch_.resize(kept);
    for (; report_.emitted < done_.size() && done_[report_.emitted]; ++report_.emitted) {
      work_.emit(report_.emitted);
    }
  }

  BatchReport report() {
    report_.cancelled = report_.emitted < done_.size();
    return std::move(report_);
  }

 private:
  const BatchWork& work_;
  std::unique_ptr<bool[]> finished_;
  std::vector<std::size_t> batch_;
  std::vector<bool> done_;
  BatchReport report_;
};

/// Batch after batch, in the order given, each to its end.
inline BatchReport decode_in_order(std::span<const std::size_t> order, const BatchWork& work,
                                   std::size_t batch, const std::stop_token& stop) {
  Decoder decoder(order.size(), work, batch);
  for (std::size_t first = 0; first < order.size() && !stop.stop_requested(); first += batch) {
    const auto sentences = order.subspan(first, std::min(batch, order.size() - first));
    decoder.batch().assign(sentences.begin(), sentences.end());
    work.encode(sentences);
    while (!decoder.batch().empty() && !stop.stop_requested()) decoder.step();
    decoder.batch().clear();
  }
  return decoder.report();
}

/// Encodes all sentences in the background, for as long as it lives.
class Encoder {
 public:
  Encoder(std::size_t sentences, const BatchWork& work, const TopUpBatchingOptions& options)
      : queue_(options.queue), thread_([this, sentences, &work, size = options.encode] {
          try {
            encode_all(sentences, work, size);
          } catch (...) {
            failure_ = std::current_exception();
          }
          queue_.close();
        }) {}

  ~Encoder() { stop(); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Waits for the next encoded sentence; returns where there is none left. Throws what encoding threw, after
  /// the sentences encoded before it.
  void wait() {
    if (queue_.wait()) return;
    stop();
    if (failure_) std::rethrow_exception(failure_);
  }

  /// Appends up to `most` encoded sentences, as many as there are.
  void take(std::size_t most, std::vector<std::size_t>& into) { queue_.take(most, into); }

 private:
  void encode_all(std::size_t sentences, const BatchWork& work, std::size_t size) {
    std::vector<std::size_t> group;
    for (std::size_t first = 0; first < sentences; first += size) {
      group.resize(std::min(size, sentences - first));
      std::iota(group.begin(), group.end(), first);
      work.encode(group);
      for (const std::size_t sentence : group) {
        if (!queue_.push(sentence)) return;
      }
    }
  }

  void stop() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
  }

  BoundedQueue<std::size_t> queue_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline BatchReport mini_batching(std::size_t sentences, const BatchWork& work, const BatchingOptions& options,
                                 std::stop_token stop) {
  detail::require_positive(options.batch, "batch");
  std::vector<std::size_t> order(sentences);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return detail::decode_in_order(order, work, options.batch, stop);
}

inline BatchReport maxi_batching(std::span<const std::size_t> lengths, const BatchWork& work,
                                 const MaxiBatchingOptions& options, std::stop_token stop) {
  detail::require_positive(options.batch, "batch");
  detail::require_positive(options.maxi, "maxi");
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t first = 0; first < order.size();) {
    const std::size_t last = first + std::min(options.maxi, order.size() - first);
    std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(first),
                     order.begin() + static_cast<std::ptrdiff_t>(last),
                     [lengths](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
    first = last;
  }
  return detail::decode_in_order(order, work, options.batch, stop);
}

inline BatchReport top_up_batching(std::size_t sentences, const BatchWork& work,
                                   const TopUpBatchingOptions& options, std::stop_token stop) {
  detail::require_positive(options.batch, "batch");
  detail::require_positive(options.encode, "encode");
  detail::require_positive(options.queue, "queue");
  if (!(options.refill_at >= 0.0 && options.refill_at < 1.0)) {
    throw std::invalid_argument("batching: refill_at is " + detail::value_text(options.refill_at) +
                                "; it must be at least 0 and below 1");
  }
  const auto refill_at = static_cast<std::size_t>(options.refill_at * static_cast<double>(options.batch));
  detail::Decoder decoder(sentences, work, options.batch);
  detail::Encoder encoder(sentences, work, options);
  std::vector<std::size_t>& batch = decoder.batch();
  while (!stop.stop_requested()) {
    if (batch.empty()) encoder.wait();
    if (batch.size() <= refill_at) encoder.take(options.batch - batch.size(), batch);
    if (batch.empty() || stop.stop_requested()) break;
    decoder.step();
  }
  return decoder.report();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
