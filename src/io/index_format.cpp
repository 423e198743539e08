// SPDX-License-Identifier: Apache-2.0
#include "io/index_format.hpp"

#include <algorithm>
#include <vector>

#include "io/byte_hash.hpp"
#include "io/file_bytes.hpp"
#include "io/safetensors_header.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

/// What LayerCheck::sampled reads of W.
constexpr std::size_t kSampledRows = 1024;

constexpr const char* kWhatIndexesAre = "; indexes are what save_index() and \"topksoftmax build\" write";

std::string hexadecimal(std::uint64_t number) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4) text[i] = digits[number & 15];
  return text;
}

void check_version(const std::filesystem::path& path, std::string_view text) {
  const std::uint64_t version = detail::number_of<std::uint64_t>(text).value_or(0);
  if (version == 0) {
    throw Error(path.string() + ": is not an index file: its format_version is " + detail::in_quotes(text) +
                kWhatIndexesAre);
  }
  if (version > kIndexVersion) {
    throw Error(path.string() + ": is of format version " + std::to_string(version) +
                ", newer than this library's " + std::to_string(kIndexVersion) +
                "; load it with the library that wrote it, or build the index again with this one");
  }
}

void check_metadata(const std::filesystem::path& path, const TensorMetadata& metadata) {
  for (const auto key : {index_key::kind, index_key::version}) {
    if (metadata.contains(key)) continue;
    throw Error(path.string() + ": is a safetensors file but not an index file: its metadata has no " +
                std::string(key) + kWhatIndexesAre);
  }
  check_version(path, metadata.find(index_key::version)->second);
}

}  // namespace

std::string layer_dtype(const SoftmaxLayer& layer) {
  switch (layer.weight_type()) {
    case WeightType::float16:
      return std::string(data_type_name(DataType::float16));
    case WeightType::bfloat16:
      return std::string(data_type_name(DataType::bfloat16));
    case WeightType::int8:
      return std::string(data_type_name(DataType::int8));
    case WeightType::q8_0:
      return "Q8_0";
    case WeightType::q6_k:
      return "Q6_K";
    case WeightType::q4_k:
      return "Q4_K";
    case WeightType::float32:
      break;
  }
  return std::string(data_type_name(DataType::float32));
}

namespace {

/// The hash of a layer with `count` rows of W, evenly spread, the first and the last among them.
std::string hash_of_rows(const SoftmaxLayer& layer, std::size_t count) {
  const kernels::Rows& rows = layer.rows();
  ByteHash hash;
  hash.add(layer_dtype(layer));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t token = count == rows.count ? i : i * (rows.count - 1) / (count - 1);
    hash.add(std::span(rows.row(token), rows.row_bytes()));
  }
  for (const float* const vector : {rows.scales, rows.bias}) {
    hash.add(std::as_bytes(std::span(vector, vector == nullptr ? 0 : rows.count)));
  }
  // Layers without a transform have the hash that they had before there were any.
  const LogitTransform& transform = layer.transform();
  if (!transform.is_identity()) {
    for (const float value : {transform.scale, transform.soft_cap}) {
      hash.add(std::as_bytes(std::span(&value, 1)));
    }
  }
  return hexadecimal(hash.value());
}

}  // namespace

std::string layer_hash(const SoftmaxLayer& layer) {
  return hash_of_rows(layer, layer.vocab());
}

std::string layer_sample(const SoftmaxLayer& layer) {
  return hash_of_rows(layer, std::min(layer.vocab(), kSampledRows));
}

std::string index_checksum(const TensorMetadata& metadata, std::span<const TensorView> tensors) {
  ByteHash hash;
  for (const auto& [key, value] : metadata) {
    if (key == index_key::checksum) continue;
    hash.add(key);
    hash.add(value);
  }
  std::vector<const TensorView*> by_name;
  for (const TensorView& tensor : tensors) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  for (const TensorView* const tensor : by_name) {
    hash.add(tensor->name);
    hash.add(data_type_name(tensor->type));
    for (const std::size_t size : tensor->shape) hash.add(size);
    hash.add(tensor->bytes);
  }
  return hexadecimal(hash.value());
}

SafetensorsFile open_index_file(const std::filesystem::path& path, FileAccess access) {
  const FileBytes file = read_file(path, access);  // what the system refuses is no damage
  const auto read = [](const auto& parse) {
    try {
      return parse();
    } catch (const Error& error) {
      throw Error(std::string(error.what()) +
                  "; it is damaged or no index file: build the index again and save it");
    }
  };
  // Asked before the tensors, of which a newer version may have some that this one cannot read.
  check_metadata(path, read([&] { return parse_safetensors_metadata(file.bytes, path); }));
  return read([&] { return SafetensorsFile::of(path, file.bytes, file.storage); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
