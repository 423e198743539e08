// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace topksoftmax::examples {

/// BLEU of a corpus with one reference a sentence, in percent: n-grams of up to 4 words, no smoothing
/// (Papineni et al., 2002).
class Bleu {
 public:
  void add(const std::vector<std::string>& hypothesis, const std::vector<std::string>& reference) {
    hypothesis_words_ += hypothesis.size();
    reference_words_ += reference.size();
    for (std::size_t n = 1; n <= kLongest; ++n) {
      std::map<std::vector<std::string>, std::size_t> wanted = count(reference, n);
      for (const auto& [gram, times] : count(hypothesis, n)) {
        const auto found = wanted.find(gram);
        matched_[n - 1] += found == wanted.end() ? 0 : std::min(times, found->second);
        written_[n - 1] += times;
      }
    }
  }

  double value() const {
    double log_precision = 0.0;
    for (std::size_t n = 0; n < kLongest; ++n) {
      if (matched_[n] == 0) return 0.0;
      log_precision +=
          std::log(static_cast<double>(matched_[n]) / static_cast<double>(written_[n])) / kLongest;
    }
    const double ratio = static_cast<double>(reference_words_) / static_cast<double>(hypothesis_words_);
    return 100.0 * std::exp(log_precision + std::min(0.0, 1.0 - ratio));
  }

 private:
  static constexpr std::size_t kLongest = 4;

  static std::map<std::vector<std::string>, std::size_t> count(const std::vector<std::string>& words,
                                                               std::size_t n) {
    std::map<std::vector<std::string>, std::size_t> grams;
    for (std::size_t i = 0; i + n <= words.size(); ++i) {
      const auto first = words.begin() + static_cast<std::ptrdiff_t>(i);
      ++grams[{first, first + static_cast<std::ptrdiff_t>(n)}];
    }
    return grams;
  }

  std::size_t hypothesis_words_ = 0;
  std::size_t reference_words_ = 0;
  std::array<std::size_t, kLongest> matched_{};
  std::array<std::size_t, kLongest> written_{};
};

}  // namespace topksoftmax::examples
