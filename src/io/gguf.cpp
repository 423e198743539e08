// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf.hpp"

#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include "io/file_bytes.hpp"
#include "io/gguf_header.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

struct KnownType {
  const char* name;
  GgmlBlock block;
};

std::optional<KnownType> known_type(GgmlType type) {
  switch (type) {
    case GgmlType::float32:
      return {{"F32", {1, 4}}};
    case GgmlType::float16:
      return {{"F16", {1, 2}}};
    case GgmlType::q4_0:
      return {{"Q4_0", {32, 18}}};
    case GgmlType::q4_1:
      return {{"Q4_1", {32, 20}}};
    case GgmlType::q5_0:
      return {{"Q5_0", {32, 22}}};
    case GgmlType::q5_1:
      return {{"Q5_1", {32, 24}}};
    case GgmlType::q8_0:
      return {{"Q8_0", {32, 34}}};
    case GgmlType::q8_1:
      return {{"Q8_1", {32, 36}}};
    case GgmlType::q2_k:
      return {{"Q2_K", {256, 84}}};
    case GgmlType::q3_k:
      return {{"Q3_K", {256, 110}}};
    case GgmlType::q4_k:
      return {{"Q4_K", {256, 144}}};
    case GgmlType::q5_k:
      return {{"Q5_K", {256, 176}}};
    case GgmlType::q6_k:
      return {{"Q6_K", {256, 210}}};
    case GgmlType::q8_k:
      return {{"Q8_K", {256, 292}}};
    case GgmlType::int8:
      return {{"I8", {1, 1}}};
    case GgmlType::int16:
      return {{"I16", {1, 2}}};
    case GgmlType::int32:
      return {{"I32", {1, 4}}};
    case GgmlType::int64:
      return {{"I64", {1, 8}}};
    case GgmlType::float64:
      return {{"F64", {1, 8}}};
    case GgmlType::bfloat16:
      return {{"BF16", {1, 2}}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<GgmlBlock> ggml_block(GgmlType type) {
  const std::optional<KnownType> known = known_type(type);
  if (!known) return std::nullopt;
  return known->block;
}

std::string ggml_type_name(GgmlType type) {
  const std::optional<KnownType> known = known_type(type);
  return known ? known->name : "type " + std::to_string(static_cast<std::uint32_t>(type));
}

bool GgufFile::recognises(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;  // to open a pipe would be to wait
  std::array<char, kGgufMagic.size()> begin = {};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == kGgufMagic;
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  FileBytes read = read_file(path);
  GgufHeader header = parse_gguf_header(read.bytes, path);

  GgufFile file;
  file.path_ = path;
  file.metadata_ = std::move(header.metadata);
  file.tensors_ = std::move(header.tensors);
  for (std::size_t i = 0; i < file.metadata_.size(); ++i) {
    file.metadata_index_.emplace(file.metadata_[i].name, i);
  }
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
    file.tensor_index_.emplace(file.tensors_[i].name, i);
  }
  file.storage_ = std::move(read.storage);
  return file;
}

const GgufValue* GgufFile::find(std::string_view name) const {
  const auto found = metadata_index_.find(name);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second];
}

Error GgufFile::type_error(const GgufValue& value, std::string_view expected) const {
  return Error(path_.string() + ": metadata " + detail::in_quotes(value.name) + " is " +
               gguf_type_text(value) + ", expected " + std::string(expected));
}

std::optional<double> GgufFile::number(std::string_view name) const {
  const GgufValue* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type == GgufType::string) throw type_error(*value, "a number");
  return gguf_number(*value);
}

std::optional<std::string_view> GgufFile::text(std::string_view name) const {
  const GgufValue* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::string) throw type_error(*value, "a string");
  return gguf_texts(*value).front();
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view name) const {
  const GgufValue* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || value->type != GgufType::string) throw type_error(*value, "an array of string");
  return gguf_texts(*value);
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  if (found == tensor_index_.end()) throw no_tensor_error(path_, name, tensor_index_);
  const GgufTensor& tensor = tensors_[found->second];
  if (!ggml_block(tensor.type)) {
    throw error(name,
                "is of ggml's " + ggml_type_name(tensor.type) +
                    ", which is not known here; layers are read from F32, F16, BF16, Q8_0, Q6_K and Q4_K");
  }
  return tensor;
}

Error GgufFile::error(std::string_view tensor_name, std::string_view what) const {
  return tensor_error(path_, tensor_name, what);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
