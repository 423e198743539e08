// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What a rank says of its rows for one context. In a message its tokens follow it, each a ScoredToken: plain
/// bytes, at any address.
struct PartialAnswer {
  std::uint64_t bytes_read = 0;
  std::uint64_t screened = 0;
  std::uint64_t candidates = 0;
  kernels::LogSumExp sum;  ///< of all allowed logits, where it is exact
  double log_z = -std::numeric_limits<double>::infinity();
  double log_z_low = -std::numeric_limits<double>::infinity();
  double log_z_high = -std::numeric_limits<double>::infinity();
  double confidence = 1.0;
  std::uint32_t tokens = 0;
  Normalizer normalizer =
      Normalizer::none;  ///< of log_z; none: no token has any mass, or it is not asked for
  bool certified = true;
  bool fell_back = false;
  bool repaired = false;

  PartialAnswer() = default;
  /// Of rows that were all counted.
  PartialAnswer(const QueryWork& work, const kernels::LogSumExp& all) : sum(all) { take_work(work); }
  /// What a backend has answered, but for its tokens.
  explicit PartialAnswer(const TopK& answer)
      : log_z(answer.log_z),
        log_z_low(answer.log_z_low),
        log_z_high(answer.log_z_high),
        confidence(answer.confidence),
        normalizer(answer.normalizer),
        certified(answer.certified) {
    take_work(answer.work);
  }

  /// Bytes of a message that has room for so many tokens.
  static constexpr std::size_t message_bytes(std::size_t most) {
    return sizeof(PartialAnswer) + most * sizeof(ScoredToken);
  }

 private:
  void take_work(const QueryWork& work) {
    bytes_read = work.bytes_read;
    screened = work.screened;
    candidates = work.candidates;
    fell_back = work.fell_back;
    repaired = work.repaired;
  }
};

static_assert(std::is_trivially_copyable_v<PartialAnswer>);

/// Writes a message with tokens(i) for i < count.
template <class Tokens>
void write_message(PartialAnswer part, std::size_t count, const Tokens& tokens, std::byte* to) {
  part.tokens = static_cast<std::uint32_t>(count);
  std::memcpy(to, &part, sizeof(part));
  for (std::size_t i = 0; i < count; ++i) {
    const ScoredToken token = tokens(i);
    std::memcpy(to + PartialAnswer::message_bytes(i), &token, sizeof(token));
  }
}

/// The same of tokens in memory.
inline void write_message(const PartialAnswer& part, std::span<const ScoredToken> tokens, std::byte* to) {
  write_message(
      part, tokens.size(), [tokens](std::size_t i) { return tokens[i]; }, to);
}

/// The same of what a backend has answered.
inline void write_message(const TopK& answer, std::byte* to) {
  const auto token = [&answer](std::size_t i) { return ScoredToken{answer.logits[i], answer.ids[i]}; };
  write_message(PartialAnswer(answer), answer.size(), token, to);
}

/// Reads a message, and calls visit(token) with each of its tokens.
template <class Visit>
PartialAnswer read_message(const std::byte* from, const Visit& visit) {
  PartialAnswer part;
  std::memcpy(&part, from, sizeof(part));
  for (std::size_t i = 0; i < part.tokens; ++i) {
    ScoredToken token;
    std::memcpy(&token, from + PartialAnswer::message_bytes(i), sizeof(token));
    visit(token);
  }
  return part;
}

/// An answer's normaliser, certificate and work from those of all ranks, added in their order.
class MergedAnswers {
 public:
  void add(const PartialAnswer& part) {
    work_.bytes_read += part.bytes_read;
    work_.screened += part.screened;
    work_.candidates += part.candidates;
    work_.fell_back |= part.fell_back;
    work_.repaired |= part.repaired;
    certified_ &= part.certified;
    doubt_ += 1.0 - part.confidence;
    sum_.add(part.sum);
    if (part.normalizer == Normalizer::none) return;
    if (parts_++ == 0) {
      normalizer_ = part.normalizer;
      log_z_ = part.log_z;
      low_ = part.log_z_low;
      high_ = part.log_z_high;
      return;
    }
    if (weakness(part.normalizer) > weakness(normalizer_)) {
      if (normalizer_ == Normalizer::exact) widen(low_, high_);
      normalizer_ = part.normalizer;
    }
    double low = part.log_z_low;
    double high = part.log_z_high;
    if (normalizer_ == Normalizer::interval && part.normalizer == Normalizer::exact) widen(low, high);
    log_z_ = kernels::log_add_exp(log_z_, part.log_z);
    low_ = kernels::log_add_exp(low_, low);
    high_ = kernels::log_add_exp(high_, high);
  }

  /// What all of them say together of an answer that every token was counted for.
  void store_exact(bool probabilities, TopK& answer) const {
    finish(answer);
    answer.certified = true;
    answer.confidence = 1.0;
    if (probabilities) {
      store_log_z(Normalizer::exact, sum_.value(), answer);
    } else {
      store_no_log_z(answer);
    }
  }

  /// The same of answers of backends.
  void store(bool probabilities, TopK& answer) const {
    finish(answer);
    if (!probabilities) {
      return store_no_log_z(answer);
    }
    store_log_z(normalizer_, log_z_, answer);
    if (normalizer_ != Normalizer::interval) return;
    const auto rounding = [this](double bound) {
      return parts_ == 1 || std::isinf(bound)
                 ? 0.0
                 : 0x1p-50 * static_cast<double>(parts_) * (1.0 + std::abs(bound));
    };
    answer.log_z_low = low_ - rounding(low_);
    answer.log_z_high = high_ + rounding(high_);
    answer.log_z = std::clamp(log_z_, answer.log_z_low, answer.log_z_high);
  }

 private:
  void finish(TopK& answer) const {
    answer.certified = certified_;
    answer.confidence = std::max(1.0 - doubt_, 0.0);
    answer.work = work_;
  }

  /// What holds of a sum is what holds of the part that least is known of.
  static int weakness(Normalizer normalizer) {
    switch (normalizer) {
      case Normalizer::none:
      case Normalizer::exact:
        return 0;
      case Normalizer::interval:
        return 1;
      case Normalizer::learned:
        return 2;
      case Normalizer::low_rank:
        return 3;
      case Normalizer::candidates:
        return 4;
    }
    return 4;
  }

  /// An exact log Z, as rounding leaves it, as an interval.
  static void widen(double& low, double& high) {
    low -= std::log1p(kernels::kSumExpError);
    high += std::log1p(kernels::kSumExpError);
  }

  QueryWork work_;
  kernels::LogSumExp sum_;
  Normalizer normalizer_ = Normalizer::exact;
  double log_z_ = -std::numeric_limits<double>::infinity();
  double low_ = -std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  std::size_t parts_ = 0;
  bool certified_ = true;
  double doubt_ = 0.0;  ///< what the probability that some part is wrong may be
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
