// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "io/byte_order.hpp"
#include "io/json_text.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 64;
constexpr std::string_view kSubject = "the header is";

/// What a file is, by its first bytes, whose header would be longer than any; empty where they do not tell.
std::string_view other_format(std::span<const std::byte> file) {
  constexpr std::array<std::array<std::string_view, 2>, 5> kFormats = {{
      {"\x93NUMPY", "a NumPy array"},
      {"GGUF", "a GGUF file"},
      {"PK\3\4", "a zip archive (as .npz and PyTorch's files are)"},
      {"\x80\2", "a pickle"},
      {"version https://git-lfs", "a pointer that Git LFS has left in the file's place"},
  }};
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const auto& [begin, name] : kFormats) {
    if (text.starts_with(begin)) return name;
  }
  const auto is_text = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; };
  const std::string_view beginning = text.substr(0, 64);
  return std::all_of(beginning.begin(), beginning.end(), is_text) ? "a text file" : std::string_view();
}

/// The bytes of the header's JSON, which stands first in the file, once they are known to be there.
std::string_view header_text(std::span<const std::byte> file, const std::filesystem::path& path) {
  require_little_endian(path.string());
  if (file.empty()) throw Error(path.string() + ": is empty");
  if (file.size() < kLengthBytes) {
    throw Error(path.string() + ": has " + std::to_string(file.size()) +
                " bytes, a safetensors file at least " + std::to_string(kLengthBytes));
  }
  const auto length = detail::value_at<std::uint64_t>(file.data());
  if (length > SafetensorsFile::max_header_bytes) {
    if (const std::string_view other = other_format(file); !other.empty()) {
      throw Error(path.string() + ": is " + std::string(other) + ", not a safetensors file");
    }
    throw Error(path.string() + ": the header's length is " + std::to_string(length) + ", the limit " +
                std::to_string(SafetensorsFile::max_header_bytes) + "; is this a safetensors file?");
  }
  if (length > file.size() - kLengthBytes) {
    throw Error(path.string() + ": the header's length is " + std::to_string(length) + ", but only " +
                std::to_string(file.size() - kLengthBytes) + " bytes follow");
  }
  const auto* const text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || *text != '{') throw Error(path.string() + ": the header does not begin with '{'");
  const std::string_view header(text, static_cast<std::size_t>(length));
  check_no_zero_byte(header, path, kSubject);
  return header;
}

/// Takes the events of the JSON parser. Only the one structure that a header may have is accepted, so nothing
/// nests deeper than it does, and what is held never outgrows the header.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  struct Entry {
    std::string name;
    std::optional<std::string> dtype;
    std::optional<std::vector<std::size_t>> shape;
    std::optional<std::vector<std::size_t>> offsets;
  };

  explicit HeaderReader(const std::filesystem::path& path) : path_(path) {}

  TensorMetadata metadata;
  std::vector<Entry> entries;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::document:
        place_ = Place::root;
        return true;
      case Place::root:
        if (key_ == kMetadataKey) {
          place_ = Place::metadata;
        } else {
          entries.push_back({key_, {}, {}, {}});
          place_ = Place::tensor;
        }
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    bool fresh = true;
    if (place_ == Place::root) fresh = names_.insert(text).second;
    if (place_ == Place::metadata) fresh = !metadata.contains(text);
    if (place_ == Place::tensor) {
      const Entry& entry = entries.back();
      if (text == "dtype") {
        fresh = !entry.dtype;
      } else if (text == "shape") {
        fresh = !entry.shape;
      } else if (text == "data_offsets") {
        fresh = !entry.offsets;
      } else {
        throw error("holds " + detail::in_quotes(text) + ", expected dtype, shape and data_offsets only");
      }
    }
    if (!fresh) throw error("holds the key " + detail::in_quotes(text) + " twice");
    key_ = text;
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      metadata.emplace(key_, text);
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      entries.back().dtype = text;
      return true;
    }
    return unexpected("the string " + detail::in_quotes(text));
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && key_ == "shape") {
      entries.back().shape.emplace();
      place_ = Place::shape;
      return true;
    }
    if (place_ == Place::tensor && key_ == "data_offsets") {
      entries.back().offsets.emplace();
      place_ = Place::offsets;
      return true;
    }
    return unexpected("an array");
  }

  bool number_unsigned(std::uint64_t value) override {
    const bool is_shape = place_ == Place::shape;
    if (!is_shape && place_ != Place::offsets) return unexpected("the number " + std::to_string(value));
    std::vector<std::size_t>& numbers = is_shape ? *entries.back().shape : *entries.back().offsets;
    if (!std::in_range<std::size_t>(value)) {
      throw error(key_ + " holds " + std::to_string(value) + ", more than this machine can address");
    }
    if (is_shape && numbers.size() == kMaxRank) {
      throw error("shape has more than " + std::to_string(kMaxRank) + " sizes");
    }
    if (!is_shape && numbers.size() == 2) throw error("data_offsets holds more than 2 numbers");
    numbers.push_back(static_cast<std::size_t>(value));
    return true;
  }

  bool number_integer(std::int64_t value) override {
    return unexpected("the number " + std::to_string(value));
  }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool null() override { return unexpected("null"); }
  bool binary(json::binary_t&) override { return unexpected("binary data"); }

  bool end_array() override {
    if (place_ == Place::offsets && entries.back().offsets->size() != 2) {
      throw error("data_offsets holds " + std::to_string(entries.back().offsets->size()) +
                  " numbers, expected 2");
    }
    place_ = Place::tensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      const Entry& entry = entries.back();
      if (!entry.dtype) throw error("has no dtype");
      if (!entry.shape) throw error("has no shape");
      if (!entry.offsets) throw error("has no data_offsets");
    }
    place_ = place_ == Place::root ? Place::document : Place::root;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    throw json_error(path_, kSubject, position, exception.what());
  }

 private:
  enum class Place { document, root, metadata, tensor, shape, offsets };

  /// An Error about what is being read.
  Error error(const std::string& what) const {
    switch (place_) {
      case Place::document:
      case Place::root:
        return Error(path_.string() + ": the header " + what);
      case Place::metadata:
        return Error(path_.string() + ": " + std::string(kMetadataKey) + " " + what);
      default:
        return tensor_error(path_, entries.back().name, what);
    }
  }

  bool unexpected(const std::string& what) const {
    switch (place_) {
      case Place::document:
        throw error("is " + what + ", expected an object");
      case Place::root:
        throw error("holds " + what + " at " + detail::in_quotes(key_) + ", expected an object");
      case Place::metadata:
        throw error("holds " + what + " at " + detail::in_quotes(key_) + ", expected a string");
      case Place::tensor:
        throw error(key_ + " is " + what + ", expected " +
                    (key_ == "dtype" ? "a string" : "an array of non-negative integers"));
      default:
        throw error(key_ + " holds " + what + ", expected non-negative integers");
    }
  }

  const std::filesystem::path& path_;
  Place place_ = Place::document;
  std::string key_;
  std::set<std::string> names_;
};

std::optional<DataType> data_type_named(std::string_view name) {
  for (auto type = DataType::boolean;; type = static_cast<DataType>(static_cast<int>(type) + 1)) {
    if (data_type_name(type) == name) return type;
    if (type == DataType::float4) return std::nullopt;
  }
}

/// The tensor of a header entry, once its sizes and offsets are known to lie within `data`. How many bytes
/// its values take is known for the types that are read.
TensorView checked_tensor(HeaderReader::Entry&& entry, std::span<const std::byte> data,
                          const std::filesystem::path& path) {
  const auto error = [&](const std::string& what) { return tensor_error(path, entry.name, what); };
  const std::optional<DataType> known = data_type_named(*entry.dtype);
  if (!known) throw error("has the unknown dtype " + detail::in_quotes(*entry.dtype));
  const DataType type = *known;
  const std::size_t begin = (*entry.offsets)[0];
  const std::size_t end = (*entry.offsets)[1];
  if (begin > end) {
    throw error("data_offsets begin at " + std::to_string(begin) + ", after their end, " +
                std::to_string(end));
  }
  if (end > data.size()) {
    throw error("data_offsets end at " + std::to_string(end) + ", past the end of the data, " +
                std::to_string(data.size()));
  }
  const std::size_t value_bytes = data_type_size(type);
  std::size_t bytes = 0;
  if (!tensor_bytes(std::max<std::size_t>(value_bytes, 1), *entry.shape, bytes)) {
    throw error("shape " + shape_text(*entry.shape) + " has more values than this machine can address");
  }
  if (value_bytes != 0 && bytes != end - begin) {
    throw error("shape " + shape_text(*entry.shape) + " of " + std::string(data_type_name(type)) + " takes " +
                std::to_string(bytes) + " bytes, data_offsets span " + std::to_string(end - begin));
  }
  return {std::move(entry.name), type, std::move(*entry.shape), data.subspan(begin, end - begin)};
}

/// The format wants every byte of the data to belong to exactly one tensor.
void check_no_overlap_and_no_gap(std::span<const TensorView> tensors, std::span<const std::byte> data,
                                 const std::filesystem::path& path) {
  const std::byte* expected = data.data();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      throw tensor_error(path, tensor.name,
                         "data_offsets begin at " + std::to_string(tensor.bytes.data() - data.data()) + ", " +
                             (tensor.bytes.data() < expected ? "within" : "with a gap after") +
                             " the tensor before it, which ends at " +
                             std::to_string(expected - data.data()));
    }
    expected += tensor.bytes.size();
  }
  if (expected != data.data() + data.size()) {
    throw Error(path.string() + ": the tensors end at byte " + std::to_string(expected - data.data()) +
                " of the data, which has " + std::to_string(data.size()));
  }
}

}  // namespace

TensorMetadata parse_safetensors_metadata(std::span<const std::byte> file,
                                          const std::filesystem::path& path) {
  HeaderReader reader(path);
  json::sax_parse(header_text(file, path), &reader);
  return std::move(reader.metadata);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::filesystem::path& path) {
  const std::string_view text = header_text(file, path);
  HeaderReader reader(path);
  json::sax_parse(text, &reader);

  const std::span<const std::byte> data = file.subspan(kLengthBytes + text.size());
  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  header.tensors.reserve(reader.entries.size());
  for (HeaderReader::Entry& entry : reader.entries) {
    header.tensors.push_back(checked_tensor(std::move(entry), data, path));
  }
  // Ends break the ties of empty tensors, which lie before what begins where they do.
  std::stable_sort(
      header.tensors.begin(), header.tensors.end(), [](const TensorView& a, const TensorView& b) {
        return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
      });
  check_no_overlap_and_no_gap(header.tensors, data, path);
  return header;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
