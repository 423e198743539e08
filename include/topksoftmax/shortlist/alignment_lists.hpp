// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// For every source token the target tokens that it is most often aligned with: a lexical table, as word
/// aligners write it and Marian reads it ("Speeding up Neural Machine Translation Decoding by Shrinking
/// Run-time Vocabulary", Shi and Knight, ACL 2017).
class TOPKSOFTMAX_EXPORT AlignmentLists {
 public:
  /// No source tokens.
  AlignmentLists() = default;

  /// Reads a table with a line "target source probability" for each pair, in any order, separated by spaces
  /// or tabs, and keeps the `per_source` likeliest targets of each source token, of equal ones the lower ids.
  /// Words that a vocabulary does not have ("NULL", say) are passed over, and so are empty lines. The id of a
  /// word is its place in the vocabulary. Throws Error with `name` and the line for lines of another form,
  /// for probabilities that are not between 0 and 1, and for words that are twice in a vocabulary.
  static AlignmentLists read(std::istream& in, std::string_view name,
                             std::span<const std::string> source_vocab,
                             std::span<const std::string> target_vocab, std::size_t per_source = 100);

  /// The same from a file. Throws Error also if it cannot be read.
  static AlignmentLists read(const std::filesystem::path& path, std::span<const std::string> source_vocab,
                             std::span<const std::string> target_vocab, std::size_t per_source = 100);

  /// Source tokens.
  std::size_t size() const { return starts_.size() - 1; }

  /// The targets of a source token below size(), the likeliest first.
  std::span<const TokenId> targets(TokenId source) const {
    const auto s = static_cast<std::size_t>(source);
    return std::span(targets_).subspan(starts_[s], starts_[s + 1] - starts_[s]);
  }

  /// One more than the largest target; 0 without any.
  std::size_t target_bound() const { return target_bound_; }

 private:
  std::vector<std::size_t> starts_ = {0};  ///< [sources + 1]
  std::vector<TokenId> targets_;
  std::size_t target_bound_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
