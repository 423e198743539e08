// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/bits.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Words that a mask may be made of. Of 64 bits: token t is bit t % 64 of word t / 64. Of 32 bits, as the
/// masks of XGrammar and llguidance are: bit t % 32 of word t / 32.
template <class T>
concept MaskWord =
    std::same_as<T, std::uint64_t> || std::same_as<T, std::uint32_t> || std::same_as<T, std::int32_t>;

/// The tokens that may be returned, one bit each: a view of the caller's words. Without words it allows all.
class AllowedTokens {
 public:
  AllowedTokens() = default;

  /// A view of `count` words of 64 or 32 bits in plain memory, which must outlive it.
  template <MaskWord T>
  AllowedTokens(const T* words, std::size_t count)
      : bytes_(reinterpret_cast<const unsigned char*>(words)),
        size_(count * sizeof(T)),
        of_32_bits_(sizeof(T) == sizeof(std::uint32_t)) {}

  /// The same of a span, a vector or an array of words.
  template <std::ranges::contiguous_range Words>
  requires std::ranges::sized_range<Words> && MaskWord<std::ranges::range_value_t<Words>> AllowedTokens(
      const Words& words)
      : AllowedTokens(std::ranges::data(words), std::ranges::size(words)) {}

  /// Whether all tokens are allowed because there are no words.
  bool empty() const { return size_ == 0; }

  /// How many tokens the words have a bit for.
  std::size_t tokens() const { return 8 * size_; }

  /// Whether it allows a token that it has a bit for.
  bool allows(TokenId id) const {
    const auto t = static_cast<std::size_t>(id);
    return empty() || (block(t / 64) >> (t % 64) & 1) != 0;
  }

  /// The bits of tokens 64·i, …, 64·i + 63, the lowest first; not where it is empty. 0 for those that it has
  /// no bit for.
  std::uint64_t block(std::size_t i) const {
    constexpr std::size_t whole = sizeof(std::uint64_t);
    if (whole * i + whole <= size_) {
      std::uint64_t bits;
      std::memcpy(&bits, bytes_ + whole * i, whole);
      // Of two words the first is the upper half where bytes stand the other way round.
      constexpr bool kBigEndian = std::endian::native == std::endian::big;
      return kBigEndian && of_32_bits_ ? std::rotl(bits, 32) : bits;
    }
    if (whole * i >= size_) return 0;
    std::uint32_t bits;
    std::memcpy(&bits, bytes_ + whole * i, sizeof(bits));
    return bits;
  }

  /// Its words, of 32 bits: token t is bit t % 32 of word t / 32. Null where they are of 64 bits, and bytes
  /// stand the other way round.
  const std::int32_t* words() const {
    const bool are_in_order = std::endian::native == std::endian::little || of_32_bits_;
    return are_in_order ? reinterpret_cast<const std::int32_t*>(bytes_) : nullptr;
  }

  /// The same tokens, as a view of a copy of the words that is made in `memory`.
  AllowedTokens copied_to(std::vector<std::uint32_t>& memory) const {
    memory.resize(size_ / sizeof(std::uint32_t));
    std::copy_n(bytes_, size_, reinterpret_cast<unsigned char*>(memory.data()));
    AllowedTokens copy = *this;
    copy.bytes_ = reinterpret_cast<const unsigned char*>(memory.data());
    return copy;
  }

  /// How many of `vocab` tokens it allows.
  std::size_t count(std::size_t vocab) const {
    if (empty()) return vocab;
    const std::size_t count = detail::count_bits(vocab / 64, [this](std::size_t i) { return block(i); });
    if (vocab % 64 == 0) return count;
    const std::uint64_t last = block(vocab / 64) & ((std::uint64_t{1} << (vocab % 64)) - 1);
    return count + static_cast<std::size_t>(std::popcount(last));
  }

  /// Calls visit(id) for each of `vocab` tokens that it allows, in rising order.
  template <class Visit>
  void visit_allowed(std::size_t vocab, const Visit& visit) const {
    const auto bits_of = [this](std::size_t i) { return empty() ? ~std::uint64_t{0} : block(i); };
    visit_blocks(vocab, bits_of, visit);
  }

  /// The same for those that it forbids.
  template <class Visit>
  void visit_forbidden(std::size_t vocab, const Visit& visit) const {
    if (empty()) return;
    const auto bits_of = [this](std::size_t i) { return ~block(i); };
    visit_blocks(vocab, bits_of, visit);
  }

 private:
  /// Calls visit(id) for each of `vocab` tokens whose bit is set in bits_of(i), of tokens 64·i, …, 64·i + 63.
  template <class BitsOf, class Visit>
  static void visit_blocks(std::size_t vocab, const BitsOf& bits_of, const Visit& visit) {
    for (std::size_t first = 0; first < vocab; first += 64) {
      std::uint64_t bits = bits_of(first / 64);
      if (vocab - first < 64) bits &= (std::uint64_t{1} << (vocab - first)) - 1;
      detail::visit_bits(bits, [&](std::size_t i) { visit(static_cast<TokenId>(first + i)); });
    }
  }

  const unsigned char* bytes_ = nullptr;
  std::size_t size_ = 0;
  bool of_32_bits_ = false;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
