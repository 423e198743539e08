// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "io/byte_order.hpp"
#include "io/replacing_file.hpp"
#include "io/safetensors_header.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t padding_after(std::size_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

void check_tensors(std::span<const TensorView> tensors, const std::filesystem::path& path) {
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    const auto error = [&](const std::string& what) { return tensor_error(path, tensor.name, what); };
    if (tensor.name.starts_with(kReservedPrefix)) throw error("names that begin with \"__\" are reserved");
    if (!names.insert(tensor.name).second) throw error("appears twice");
    if (data_type_size(tensor.type) == 0) {
      throw error("is of " + std::string(data_type_name(tensor.type)) +
                  ", which this library does not write");
    }
    std::size_t bytes = 0;
    if (!tensor_bytes(data_type_size(tensor.type), tensor.shape, bytes) || bytes != tensor.bytes.size()) {
      throw error("has " + std::to_string(tensor.bytes.size()) + " bytes, which is not shape " +
                  shape_text(tensor.shape) + " of " + std::string(data_type_name(tensor.type)));
    }
  }
}

/// The header with its length before it, filled up with spaces so that the data begin aligned.
std::string header_bytes(std::span<const TensorView> tensors, const TensorMetadata& metadata,
                         const std::filesystem::path& path) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::size_t offset = 0;
  std::size_t paddings = 0;
  const auto add = [&](const std::string& name, DataType type, const std::vector<std::size_t>& shape,
                       std::size_t bytes) {
    header[name] = {
        {"dtype", data_type_name(type)}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  };
  for (const TensorView& tensor : tensors) {
    add(tensor.name, tensor.type, tensor.shape, tensor.bytes.size());
    const std::size_t padding = padding_after(offset);
    if (padding != 0) {
      add(std::string(kPaddingPrefix) + "." + std::to_string(paddings++), DataType::uint8, {padding},
          padding);
    }
  }

  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& failure) {
    throw Error(path.string() + ": a name or the metadata is not UTF-8: " + failure.what());
  }
  std::uint64_t length = text.size();
  length += padding_after(sizeof(length) + text.size());
  if (length > SafetensorsFile::max_header_bytes) {
    throw Error(path.string() + ": the header would take " + std::to_string(length) +
                " bytes, the limit is " + std::to_string(SafetensorsFile::max_header_bytes));
  }
  text.resize(static_cast<std::size_t>(length), ' ');
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const TensorMetadata& metadata) {
  require_little_endian(path.string());
  check_tensors(tensors, path);
  const std::string header = header_bytes(tensors, metadata, path);

  ReplacingFile file(path);
  file.write(std::as_bytes(std::span(header)));
  constexpr std::byte zeros[kAlignment] = {};
  for (const TensorView& tensor : tensors) {
    file.write(tensor.bytes);
    file.write(std::span(zeros).first(padding_after(tensor.bytes.size())));
  }
  file.commit();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
