// SPDX-License-Identifier: Apache-2.0
#include "shortlist/word_tables.hpp"

#include "io/file_descriptor.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

WordIds word_ids(std::span<const std::string> vocab, std::string_view name, const char* side) {
  WordIds ids;
  ids.reserve(vocab.size());
  for (std::size_t i = 0; i < vocab.size(); ++i) {
    if (!ids.emplace(vocab[i], static_cast<TokenId>(i)).second) {
      throw Error(std::string(name) + ": the " + side + " vocabulary has " + detail::in_quotes(vocab[i]) +
                  " twice");
    }
  }
  return ids;
}

Error unreadable(std::string_view name) {
  return Error(std::string(name) + ": cannot be read");
}

std::ifstream open_table(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw system_error(path, "read");
  return in;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
