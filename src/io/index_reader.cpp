// SPDX-License-Identifier: Apache-2.0
#include "io/index_reader.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "aligned_storage.hpp"
#include "io/safetensors_header.hpp"

namespace topksoftmax {

IndexReader::IndexReader(std::shared_ptr<const File> file, std::string prefix, std::size_t depth,
                         std::string outer)
    : file_(std::move(file)), prefix_(std::move(prefix)), depth_(depth), kind_(std::move(outer)) {
  const std::string* const own = find(index_key::kind);
  if (own == nullptr) throw unusable("its metadata has no " + prefix_ + index_key::kind);
  kind_.assign(*own);
}

IndexReader IndexReader::open(const std::filesystem::path& path, SoftmaxLayer layer, std::string_view kind) {
  IndexReader in(std::make_shared<const File>(File{open_index_file(path), std::move(layer)}), "", 0, "");
  in.check_kind(kind);
  in.check_layer();
  return in;
}

IndexReader IndexReader::part(std::string_view name) const {
  if (depth_ == kMostIndexParts) {
    throw unusable("more than " + std::to_string(kMostIndexParts) + " indexes are within each other");
  }
  return {file_, prefix_ + std::string(name) + ".", depth_ + 1, kind_};
}

void IndexReader::check_kind(std::string_view expected) const {
  if (expected.empty() || kind_ == expected) return;
  throw Error(path().string() + ": holds an index of kind " + in_quotes(kind_) + ", expected " +
              in_quotes(expected) + "; load_index() loads any kind");
}

void IndexReader::check_layer() const {
  const auto differs = [&](const char* key, const std::string& own) {
    const std::string& recorded = metadata(key);
    if (recorded == own) return;
    throw Error(path().string() + ": was built for another layer: its " + key + " is " + in_quotes(recorded) +
                ", that of this layer " + in_quotes(own) + build_it_again(kind_));
  };
  differs(index_key::vocab, std::to_string(vocab()));
  differs(index_key::dim, std::to_string(dim()));
  differs(index_key::dtype, layer_dtype(layer()));
  differs(index_key::layer_hash, layer_hash(layer()));
}

const std::string* IndexReader::find(const std::string& key) const {
  const SafetensorsMetadata& all = file_->tensors.metadata();
  const auto found = all.find(prefix_ + key);
  return found == all.end() ? nullptr : &found->second;
}

const std::string& IndexReader::metadata(const char* key) const {
  const std::string* const value = find(key);
  if (value == nullptr) throw unusable("its metadata has no " + prefix_ + key);
  return *value;
}

IndexReader::Bytes IndexReader::aligned_bytes(std::string_view name, Shape shape, DataType type) const {
  const std::string full = prefix_ + std::string(name);
  const SafetensorsFile& file = file_->tensors;
  if (!file.contains(full)) throw damaged(name, "is not in the file");
  const TensorView& view = file.tensor(full);
  const bool fits =
      std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end(),
                 [](std::size_t size, std::size_t wanted) { return wanted == any || size == wanted; });
  if (view.type != type || !fits) {
    throw damaged(name, "is " + std::string(data_type_name(view.type)) + " " + shape_text(view.shape) +
                            ", expected " + std::string(data_type_name(type)) + " " + shape_text(shape));
  }
  constexpr auto line = static_cast<std::size_t>(FreeAligned::kCacheLine);
  if (reinterpret_cast<std::uintptr_t>(view.bytes.data()) % line == 0) return {view.bytes, file.storage()};
  const std::shared_ptr<std::byte> copy = aligned_zeros(view.bytes.size());
  std::copy(view.bytes.begin(), view.bytes.end(), copy.get());
  return {{copy.get(), view.bytes.size()}, copy};
}

StoredArray<float> IndexReader::floats(std::string_view name, Shape shape) const {
  StoredArray<float> values = array<float>(name, shape);
  check_numbers(name, values.span());
  return values;
}

StoredArray<double> IndexReader::doubles(std::string_view name, Shape shape) const {
  StoredArray<double> values = array<double>(name, shape);
  check_numbers(name, values.span());
  return values;
}

StoredArray<TokenId> IndexReader::tokens(std::string_view name, Shape shape) const {
  StoredArray<TokenId> ids = array<TokenId>(name, shape);
  std::uint32_t highest = 0;  // of negative ones it is 2³¹ or more
  for (const TokenId id : ids) highest = std::max(highest, static_cast<std::uint32_t>(id));
  if (ids.size() > 0 && highest >= vocab()) {
    throw damaged(name, "has the token " + std::to_string(static_cast<TokenId>(highest)) +
                            ", tokens are from 0 to " + std::to_string(vocab() - 1));
  }
  return ids;
}

StoredArray<TokenId> IndexReader::distinct_tokens(std::string_view name, Shape shape) const {
  StoredArray<TokenId> ids = tokens(name, shape);
  std::vector<bool> met(vocab(), false);
  for (const TokenId id : ids) {
    const auto token = static_cast<std::size_t>(id);
    if (met[token]) throw damaged(name, "has the token " + std::to_string(id) + " twice");
    met[token] = true;
  }
  return ids;
}

StoredArray<std::uint64_t> IndexReader::offsets(std::string_view name, Shape shape, std::size_t end,
                                                std::size_t begin) const {
  StoredArray<std::uint64_t> offsets = array<std::uint64_t>(name, shape);
  check_offsets(name, offsets.span(), end, begin);
  return offsets;
}

std::string IndexReader::option_text(std::string_view name) const {
  const std::string key = index_key::options + std::string(name);
  return metadata(key.c_str());
}

Error IndexReader::bad_option(std::string_view name, std::string_view text) const {
  return unusable("its metadata " + prefix_ + index_key::options + std::string(name) + " is " +
                  in_quotes(text) + ", expected a number");
}

Error IndexReader::damaged(std::string_view tensor, const std::string& what) const {
  return Error(tensor_error(path(), prefix_ + std::string(tensor), what).what() +
               ("; it is damaged" + build_it_again(kind_)));
}

Error IndexReader::unusable(std::string_view what) const {
  return Error(path().string() + ": " + std::string(what) + "; it is damaged" + build_it_again(kind_));
}

}  // namespace topksoftmax
