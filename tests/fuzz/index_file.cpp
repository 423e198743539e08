// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/index_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/backends.hpp"
#include "fuzz/choices.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "support/layers.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax::fuzz {
namespace {

constexpr Eigen::Index kVocab = 40;
constexpr Eigen::Index kDim = 6;

const SoftmaxLayer& layer() {
  static const SoftmaxLayer made = testing::random_layer(kVocab, kDim, 1);
  return made;
}

/// An index file taken apart, to be changed.
struct Index {
  struct Part {
    std::size_t begin;  ///< in `data`
    std::size_t count;
    std::size_t size;  ///< bytes of a value
  };
  std::string header;
  std::string data;
  std::vector<Part> tensors;  ///< those that have values

  std::string file() const {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    return bytes + header + data;
  }
};

/// What a backend saves.
Index saved(const TopKSoftmax& backend) {
  std::string folder = (std::filesystem::temp_directory_path() / "topksoftmax-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "a folder can be made");
  const std::filesystem::path path = std::filesystem::path(folder) / "index";
  save_index(backend, path);
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::remove_all(folder);

  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  Index index{.header = bytes.substr(sizeof(length), length),
              .data = bytes.substr(sizeof(length) + length),
              .tensors = {}};
  std::size_t begin = 0;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.bytes.empty()) continue;
    // In the order of their bytes, each at a multiple of 64.
    index.tensors.push_back({.begin = begin, .count = tensor.size(), .size = data_type_size(tensor.type)});
    begin = (begin + tensor.bytes.size() + 63) / 64 * 64;
  }
  return index;
}

/// One of every kind.
const std::vector<Index>& indexes() {
  static const std::vector<Index> all = [] {
    std::vector<Index> made;
    const RowMajorMatrix contexts = testing::clustered_contexts(60, kDim, 4, 2);
    for (const testing::Backend& backend : testing::all_backends()) {
      made.push_back(saved(*backend.make(layer(), contexts)));
    }
    return made;
  }();
  return all;
}

/// The numbers of a header: version, sizes, offsets, options; their begin and end.
std::vector<std::pair<std::size_t, std::size_t>> numbers(const std::string& header) {
  constexpr const char* digits = "0123456789.-";
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t begin = header.find_first_of(digits); begin != std::string::npos;) {
    const std::size_t end = std::min(header.find_first_not_of(digits, begin), header.size());
    const bool whole = begin > 0 && end < header.size() &&
                       std::string_view("\",[").find(header[begin - 1]) != std::string_view::npos &&
                       std::string_view("\",]").find(header[end]) != std::string_view::npos;
    if (whole) found.emplace_back(begin, end);
    begin = header.find_first_of(digits, end);
  }
  return found;
}

void change_number(Choices& choices, std::string& header) {
  constexpr std::array<const char*, 20> odd = {"0",
                                               "1",
                                               "2",
                                               "39",
                                               "40",
                                               "41",
                                               "63",
                                               "64",
                                               "65",
                                               "-1",
                                               "0.5",
                                               "1e308",
                                               "nan",
                                               "inf",
                                               "",
                                               "2147483648",
                                               "4294967295",
                                               "4611686018427387904",
                                               "9223372036854775808",
                                               "18446744073709551615"};
  const auto places = numbers(header);
  if (places.empty()) return;
  const auto [begin, end] = places[choices.between(0, 65535) % places.size()];
  const std::string number =
      choices.yes() ? odd[choices.between(0, odd.size() - 1)] : std::to_string(choices.between(0, 999));
  header.replace(begin, end - begin, number);
}

void change_value(Choices& choices, Index& index) {
  if (index.tensors.empty()) return;
  const Index::Part& tensor = index.tensors[choices.byte() % index.tensors.size()];
  char* const values = index.data.data() + tensor.begin;
  char* const value = values + choices.between(0, 65535) % tensor.count * tensor.size;
  switch (choices.byte() % 3) {
    case 0: {  // a whole number, from −128 to V and more
      const std::int64_t number = static_cast<std::int64_t>(choices.byte()) - 128;
      std::memcpy(value, &number, tensor.size);
      break;
    }
    case 1: {  // another one's value
      const char* const other = values + choices.between(0, 65535) % tensor.count * tensor.size;
      std::memmove(value, other, tensor.size);
      break;
    }
    default:  // a number of any size, or none
      for (std::size_t i = 0; i < tensor.size; ++i) value[i] = static_cast<char>(choices.byte());
  }
}

/// Changes an index in one place; the tensors keep theirs.
void damage(Choices& choices, Index& index) {
  switch (choices.byte() % 8) {
    case 0:
      index.header[choices.between(0, 65535) % index.header.size()] = static_cast<char>(choices.byte());
      break;
    case 1:
    case 2:
    case 3:
      change_number(choices, index.header);
      break;
    default:
      change_value(choices, index);
  }
}

void ask(const TopKSoftmax& backend) {
  const RowMajorMatrix contexts = testing::random_matrix(3, kDim, 5);
  std::vector<std::uint64_t> some = {0x5555555555ULL};
  const std::array<QueryOptions, 4> questions = {
      QueryOptions{.k = 3}, QueryOptions{.k = static_cast<std::size_t>(kVocab)},
      QueryOptions{.k = 5, .allowed = some, .log_z_tolerance = 0.5},
      QueryOptions{.k = 2, .effort = QueryOptions::full_effort}};
  for (const QueryOptions& question : questions) {
    for (const TopK& answer : backend.query_batch(contexts, question)) {
      require(answer.size() <= question.k, "there are no more tokens than asked for");
      for (const TokenId id : answer.ids) {
        require(id >= 0 && id < kVocab, "tokens are of the vocabulary");
      }
    }
  }
}

}  // namespace

void index_file(Bytes input) {
  Choices choices(input);
  Index index = indexes()[choices.place(indexes().size())];
  const bool whole = !choices.left();
  for (int changes = 0; changes < 8 && choices.left(); ++changes) damage(choices, index);
  const MemoryFile memory(index.file());
  std::unique_ptr<TopKSoftmax> backend;
  try {
    backend = load_index(memory.path(), layer());
  } catch (const Error&) {
    require(!whole, "what was saved is loaded");
    return;
  }
  ask(*backend);
}

}  // namespace topksoftmax::fuzz
