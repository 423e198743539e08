// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <istream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shortlist/word_tables.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

/// What CTranslate2 has among the candidates of every sentence.
constexpr std::string_view kSpecialWords[] = {"<unk>", "<s>", "</s>"};

/// The ids of words with a space between two of them, and whether the vocabulary has them all.
std::pair<std::vector<TokenId>, bool> ids_in(std::string_view words, const WordIds& ids) {
  std::vector<TokenId> found;
  bool all = true;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(word.size() + 1, words.size()));
    const auto id = ids.find(word);
    if (id == ids.end()) {
      all = false;
    } else {
      found.push_back(id->second);
    }
  }
  return {std::move(found), all};
}

/// Leaves the first of equal ids, in their order.
void remove_repeated(std::vector<TokenId>& targets, std::vector<bool>& seen) {
  std::erase_if(targets, [&seen](TokenId target) {
    const bool repeated = seen[static_cast<std::size_t>(target)];
    seen[static_cast<std::size_t>(target)] = true;
    return repeated;
  });
  for (const TokenId target : targets) seen[static_cast<std::size_t>(target)] = false;
}

}  // namespace

AlignmentLists AlignmentLists::read_vocabulary_map(std::istream& in, std::string_view name,
                                                   std::span<const std::string> source_vocab,
                                                   std::span<const std::string> target_vocab) {
  if (!in) throw unreadable(name);
  const WordIds sources = word_ids(source_vocab, name, "source");
  const WordIds targets = word_ids(target_vocab, name, "target");
  AlignmentLists map;
  std::vector<bool> seen(target_vocab.size(), false);
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    std::string_view text = line;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    const std::size_t tab = text.find('\t');
    if (tab == std::string_view::npos || text.find('\t', tab + 1) != std::string_view::npos) {
      throw Error(std::string(name) + ", line " + std::to_string(number) +
                  ": it must be source words, a tab, and target words");
    }
    auto [phrase, known] = ids_in(text.substr(0, tab), sources);
    if (!known) continue;
    std::vector<TokenId> list = ids_in(text.substr(tab + 1), targets).first;
    remove_repeated(list, seen);
    map.phrases_.insert_or_assign(std::move(phrase), std::move(list));
  }
  if (in.bad()) throw unreadable(name);

  for (const auto& [phrase, list] : map.phrases_) map.widen(list);
  // Of no token and of one, lists are found without a search.
  const auto take = [&map](const std::vector<TokenId>& phrase) {
    auto node = map.phrases_.extract(phrase);
    return node.empty() ? std::vector<TokenId>() : std::move(node.mapped());
  };
  map.always_ = take({});
  for (const std::string_view word : kSpecialWords) {
    if (const auto id = targets.find(word); id != targets.end()) map.always_.push_back(id->second);
  }
  remove_repeated(map.always_, seen);
  map.widen(map.always_);
  std::vector<std::vector<TokenId>> lists;
  for (std::size_t source = 0; source < source_vocab.size(); ++source) {
    lists.push_back(take({static_cast<TokenId>(source)}));
  }
  map.set_targets(lists);
  return map;
}

AlignmentLists AlignmentLists::read_vocabulary_map(const std::filesystem::path& path,
                                                   std::span<const std::string> source_vocab,
                                                   std::span<const std::string> target_vocab) {
  std::ifstream in = open_table(path);
  return read_vocabulary_map(in, path.string(), source_vocab, target_vocab);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
