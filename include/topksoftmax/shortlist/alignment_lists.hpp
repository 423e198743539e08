// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Sequences of tokens in the order of dictionaries, so that those with a common beginning stand together.
struct PhraseOrder {
  using is_transparent = void;
  bool operator()(std::span<const TokenId> a, std::span<const TokenId> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

/// Target tokens by sequences of source tokens.
using Phrases = std::map<std::vector<TokenId>, std::vector<TokenId>, PhraseOrder>;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// For every source token the target tokens that it is most often aligned with: a lexical table, as word
/// aligners write it and Marian reads it ("Speeding up Neural Machine Translation Decoding by Shrinking
/// Run-time Vocabulary", Shi and Knight, ACL 2017). Marian's binary shortlists and CTranslate2's vocabulary
/// maps are such lists too, with targets that every sentence has, and the latter with lists for sequences of
/// source tokens.
class TOPKSOFTMAX_EXPORT AlignmentLists {
 public:
  /// No source tokens.
  AlignmentLists() = default;

  /// Reads a table with a line "target source probability" for each pair, in any order, separated by spaces
  /// or tabs, and keeps the `per_source` likeliest targets of each source token, of equal ones the lower ids.
  /// Words that a vocabulary does not have ("NULL", say) are passed over, and so are empty lines. The id of a
  /// word is its place in the vocabulary. Throws Error with `name` and the line for lines of another form,
  /// for probabilities that are not between 0 and 1, and for words that are twice in a vocabulary.
  ///
  /// Marian's binary form, which its first 8 bytes tell from text, is read too: ids of the same vocabularies,
  /// in lists as long as they were made, and how many of the first target tokens every sentence has. Throws
  /// Error where sizes, offsets or ids are not what the file and the vocabularies allow, and where the
  /// checksum is another. Marian computes that with its compiler's hash of integers; taken here is the one of
  /// GCC's and Clang's libraries, the integer itself. Of an odd number of targets it leaves out the last.
  static AlignmentLists read(std::istream& in, std::string_view name,
                             std::span<const std::string> source_vocab,
                             std::span<const std::string> target_vocab, std::size_t per_source = 100);

  /// The same from a file. Throws Error also if it cannot be read.
  static AlignmentLists read(const std::filesystem::path& path, std::span<const std::string> source_vocab,
                             std::span<const std::string> target_vocab, std::size_t per_source = 100);

  /// Reads CTranslate2's vmap.txt: lines of source tokens, a tab, and target tokens, with a space between two
  /// of them. The targets of the line without source tokens are always(), and so are "<unk>", "<s>" and
  /// "</s>" where the vocabulary has them. Of several lines for the same source tokens the last counts. Words
  /// that a vocabulary does not have are passed over, with all of the line where it is a source token; so are
  /// empty lines. Throws Error with `name` and the line where there is no tab or more than one, and for words
  /// that are twice in a vocabulary.
  static AlignmentLists read_vocabulary_map(std::istream& in, std::string_view name,
                                            std::span<const std::string> source_vocab,
                                            std::span<const std::string> target_vocab);

  /// The same from a file. Throws Error also if it cannot be read.
  static AlignmentLists read_vocabulary_map(const std::filesystem::path& path,
                                            std::span<const std::string> source_vocab,
                                            std::span<const std::string> target_vocab);

  /// Source tokens.
  std::size_t size() const { return targets_.size(); }

  /// The targets of a source token below size(), the likeliest first where the table tells, each once.
  std::span<const TokenId> targets(TokenId source) const {
    return targets_[static_cast<std::size_t>(source)];
  }

  /// The targets that every sentence has.
  std::span<const TokenId> always() const { return always_; }

  /// One more than the largest target; 0 without any.
  std::size_t target_bound() const { return target_bound_; }

  /// All targets of some sentences, in ascending order: always(), those of every token, and those of every
  /// sequence of tokens that has a list of its own. Sequences that begin in one sentence and end in the next
  /// count like others. Cost: O(target_bound() + targets), and for every token a look-up, and comparing
  /// what follows it with the sequences that begin alike. Throws Error for a token that the lists do not
  /// have.
  std::vector<TokenId> targets_of(std::span<const TokenId> source_tokens) const;

 private:
  static AlignmentLists read_text(std::istream& in, std::string_view name,
                                  std::span<const std::string> source_vocab,
                                  std::span<const std::string> target_vocab, std::size_t per_source);
  static AlignmentLists read_binary(std::string_view bytes, std::string_view name, std::size_t source_count,
                                    std::size_t target_count);
  /// Takes the lists of all source tokens.
  void set_targets(std::span<const std::vector<TokenId>> lists);
  /// Has the bound above these targets.
  void widen(std::span<const TokenId> targets);

  StoredLists<TokenId> targets_;  ///< of each source token
  std::vector<TokenId> always_;
  detail::Phrases phrases_;  ///< of two source tokens and more
  std::size_t target_bound_ = 0;
};

inline std::vector<TokenId> AlignmentLists::targets_of(std::span<const TokenId> source_tokens) const {
  std::vector<bool> chosen(target_bound_, false);
  const auto choose = [&chosen](std::span<const TokenId> targets) {
    for (const TokenId target : targets) chosen[static_cast<std::size_t>(target)] = true;
  };
  choose(always_);
  for (std::size_t i = 0; i < source_tokens.size(); ++i) {
    const TokenId source = source_tokens[i];
    if (source < 0 || static_cast<std::size_t>(source) >= size()) {
      throw Error("shortlist: source token " + std::to_string(source) + " is not one of the " +
                  std::to_string(size()) + " that the lists have");
    }
    choose(targets(source));
    // Phrases that the rest begins with come by length; others may lie between them.
    const std::span<const TokenId> rest = source_tokens.subspan(i);
    auto found = phrases_.lower_bound(rest.first(std::min<std::size_t>(2, rest.size())));
    while (found != phrases_.end()) {
      const std::span<const TokenId> phrase = found->first;
      const auto [differs, at] = std::mismatch(phrase.begin(), phrase.end(), rest.begin(), rest.end());
      if (differs == phrase.end()) {
        choose(found->second);
        ++found;
      } else if (at == rest.end() || *differs > *at) {
        break;  // all others come after the rest
      } else {
        found = phrases_.lower_bound(rest.first(static_cast<std::size_t>(at - rest.begin()) + 1));
      }
    }
  }
  std::vector<TokenId> all;
  for (std::size_t target = 0; target < chosen.size(); ++target) {
    if (chosen[target]) all.push_back(static_cast<TokenId>(target));
  }
  return all;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
