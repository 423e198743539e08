// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/shortlist/alignment_lists.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "shortlist/binary_shortlist.hpp"
#include "shortlist/word_tables.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

/// The next word of a line, which it takes off; empty at its end.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view blanks = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

struct Pair {
  TokenId source;
  float probability;
  TokenId target;
};

bool before(const Pair& a, const Pair& b) {
  if (a.source != b.source) return a.source < b.source;
  return a.probability != b.probability ? a.probability > b.probability : a.target < b.target;
}

/// Whether a number that is out of the range of floats is too small for them, not too large: where its first
/// digit other than 0 stands, and the exponent, tell.
bool too_small(std::string_view number) {
  const std::string_view digits = number.substr(0, number.find_first_of("eE"));
  std::string_view power = number.substr(std::min(digits.size() + 1, number.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (error == std::errc::result_out_of_range) return power.starts_with('-');
  const auto point = static_cast<std::ptrdiff_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<std::ptrdiff_t>(digits.find_first_of("123456789"));
  return point - first + exponent < 0;
}

float read_probability(std::string_view word, const std::string& where) {
  float probability = 0.0F;
  const char* const last = word.data() + word.size();
  auto [end, error] = std::from_chars(word.data(), last, probability);
  if (error == std::errc::result_out_of_range && !word.starts_with('-') && too_small(word)) {
    probability = 0.0F;
    error = std::errc();
  }
  if (error != std::errc() || end != last || !(probability >= 0.0F && probability <= 1.0F)) {
    throw Error(where + ": " + detail::in_quotes(word) +
                " is not a probability; it must be a number from 0 to 1");
  }
  return probability;
}

}  // namespace

AlignmentLists AlignmentLists::read_text(std::istream& in, std::string_view name,
                                         std::span<const std::string> source_vocab,
                                         std::span<const std::string> target_vocab, std::size_t per_source) {
  const WordIds sources = word_ids(source_vocab, name, "source");
  const WordIds targets = word_ids(target_vocab, name, "target");
  std::vector<Pair> pairs;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    std::string_view rest = line;
    const std::string_view target = take_word(rest);
    if (target.empty()) continue;
    const std::string_view source = take_word(rest);
    const std::string_view probability = take_word(rest);
    const std::string where = std::string(name) + ", line " + std::to_string(number);
    if (probability.empty() || !take_word(rest).empty()) {
      throw Error(where + ": it must be \"target source probability\"");
    }
    const float p = read_probability(probability, where);
    const auto source_id = sources.find(source);
    const auto target_id = targets.find(target);
    if (source_id == sources.end() || target_id == targets.end()) continue;
    pairs.push_back({source_id->second, p, target_id->second});
  }
  if (in.bad()) throw unreadable(name);

  std::sort(pairs.begin(), pairs.end(), before);
  std::vector<std::vector<TokenId>> lists(source_vocab.size());
  std::vector<std::size_t> last_list(target_vocab.size(), lists.size());  // that a target was in
  auto pair = pairs.begin();
  for (std::size_t source = 0; source < lists.size(); ++source) {
    std::vector<TokenId>& list = lists[source];
    for (; pair != pairs.end() && static_cast<std::size_t>(pair->source) == source; ++pair) {
      std::size_t& last = last_list[static_cast<std::size_t>(pair->target)];
      if (list.size() == per_source || last == source) continue;
      last = source;
      list.push_back(pair->target);
    }
  }
  AlignmentLists table;
  table.set_targets(lists);
  return table;
}

AlignmentLists AlignmentLists::read(std::istream& in, std::string_view name,
                                    std::span<const std::string> source_vocab,
                                    std::span<const std::string> target_vocab, std::size_t per_source) {
  if (!in) throw unreadable(name);
  // No UTF-8 begins with this byte, but text of another encoding may.
  if (in.peek() != std::char_traits<char>::to_int_type(kShortlistMagic.front())) {
    return read_text(in, name, source_vocab, target_vocab, per_source);
  }
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (bytes.starts_with(kShortlistMagic)) {
    return read_binary(bytes, name, source_vocab.size(), target_vocab.size());
  }
  std::istringstream text(bytes);
  return read_text(text, name, source_vocab, target_vocab, per_source);
}

AlignmentLists AlignmentLists::read(const std::filesystem::path& path,
                                    std::span<const std::string> source_vocab,
                                    std::span<const std::string> target_vocab, std::size_t per_source) {
  std::ifstream in = open_table(path);
  return read(in, path.string(), source_vocab, target_vocab, per_source);
}

void AlignmentLists::set_targets(std::span<const std::vector<TokenId>> lists) {
  targets_ = StoredLists<TokenId>::copy(lists);
  widen(targets_.values().span());
}

void AlignmentLists::widen(std::span<const TokenId> targets) {
  for (const TokenId target : targets) {
    target_bound_ = std::max(target_bound_, static_cast<std::size_t>(target) + 1);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
