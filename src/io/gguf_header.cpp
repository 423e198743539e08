// SPDX-License-Identifier: Apache-2.0
#include "io/gguf_header.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "io/byte_order.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

namespace {

using detail::value_at;

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint32_t kDefaultAlignment = 32;

/// What an entry, a tensor's description and a text take at least.
constexpr std::size_t kLeastValueBytes = 8 + 4 + 1;
constexpr std::size_t kLeastTensorBytes = 8 + 4 + 4 + 8;
constexpr std::size_t kLengthBytes = 8;

/// The name of a type of the metadata and the bytes of one value; 0 for texts and arrays, which vary.
struct ValueType {
  const char* name;
  std::size_t bytes;
};
constexpr std::array<ValueType, 13> kValueTypes = {{{"uint8", 1},
                                                    {"int8", 1},
                                                    {"uint16", 2},
                                                    {"int16", 2},
                                                    {"uint32", 4},
                                                    {"int32", 4},
                                                    {"float32", 4},
                                                    {"bool", 1},
                                                    {"string", 0},
                                                    {"array", 0},
                                                    {"uint64", 8},
                                                    {"int64", 8},
                                                    {"float64", 8}}};

const ValueType& value_type(GgufType type) {
  return kValueTypes[static_cast<std::size_t>(type)];
}

/// Takes what stands next in a file, once it is known to be there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::filesystem::path& path) : file_(file), path_(path) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return file_.size() - position_; }

  /// Names what is read from here on, for the errors.
  void read(std::string what) { what_ = std::move(what); }

  Error error(const std::string& what) const { return Error(path_.string() + ": " + what_ + " " + what); }

  template <class T>
  T number() {
    return value_at<T>(bytes(sizeof(T)).data());
  }

  std::span<const std::byte> bytes(std::size_t count) {
    if (count > left()) {
      throw error("is cut off: the file ends at byte " + std::to_string(file_.size()));
    }
    position_ += count;
    return file_.subspan(position_ - count, count);
  }

  std::string_view text() {
    const auto length = number<std::uint64_t>();
    if (length > left()) {
      throw error("has a text of " + std::to_string(length) + " bytes at byte " +
                  std::to_string(position_ - kLengthBytes) + " of the file; only " + std::to_string(left()) +
                  " follow");
    }
    const auto size = static_cast<std::size_t>(length);
    return {reinterpret_cast<const char*>(bytes(size).data()), size};
  }

  /// The number of things that follow, of at least `least` bytes each.
  std::size_t count(const char* things, std::size_t least) {
    const auto claimed = number<std::uint64_t>();
    check_count(claimed, things, least);
    return static_cast<std::size_t>(claimed);
  }

  void check_count(std::uint64_t claimed, const char* things, std::size_t least) const {
    if (claimed > left() / least) {
      throw error("has " + std::to_string(claimed) + " " + things + "; the " + std::to_string(left()) +
                  " bytes that follow hold at most " + std::to_string(left() / least));
    }
  }

 private:
  std::span<const std::byte> file_;
  const std::filesystem::path& path_;
  std::size_t position_ = 0;
  std::string what_;
};

void check_magic_and_version(Cursor& in) {
  in.read("the header");
  if (in.left() < kGgufMagic.size() ||
      std::memcmp(in.bytes(kGgufMagic.size()).data(), kGgufMagic.data(), kGgufMagic.size()) != 0) {
    throw in.error("does not begin with \"GGUF\"; is this a GGUF file?");
  }
  const auto version = in.number<std::uint32_t>();
  // Of a big-endian file the bytes stand the other way round.
  if (version != 0 && (version & 0xffffU) == 0) {
    throw in.error("is big-endian; only little-endian files can be read");
  }
  if (version != 2 && version != 3) {
    throw in.error("is of version " + std::to_string(version) + "; versions 2 and 3 can be read");
  }
}

GgufType known_type(const Cursor& in, std::uint32_t number) {
  if (number >= kValueTypes.size()) {
    throw in.error("is of the unknown type " + std::to_string(number) + "; types are below " +
                   std::to_string(kValueTypes.size()));
  }
  return static_cast<GgufType>(number);
}

/// Passes over the values of an entry, which it checks.
void pass_values(Cursor& in, GgufType type, std::size_t count) {
  if (type == GgufType::string) {
    for (std::size_t i = 0; i < count; ++i) in.text();
    return;
  }
  const std::span<const std::byte> values = in.bytes(count * value_type(type).bytes);
  if (type != GgufType::boolean) return;
  const auto bad = std::find_if(values.begin(), values.end(), [](std::byte value) {
    return value != std::byte{0} && value != std::byte{1};
  });
  if (bad != values.end()) {
    throw in.error("holds " + std::to_string(std::to_integer<int>(*bad)) + " for a bool; it must be 0 or 1");
  }
}

GgufValue read_value(Cursor& in, std::span<const std::byte> file, std::size_t place) {
  GgufValue value;
  in.read("entry " + std::to_string(place) + " of the metadata");
  value.name = in.text();
  in.read("metadata " + detail::in_quotes(value.name));
  value.type = known_type(in, in.number<std::uint32_t>());
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = known_type(in, in.number<std::uint32_t>());
    if (value.type == GgufType::array) throw in.error("is an array of arrays, which cannot be read");
    const std::size_t least = value.type == GgufType::string ? kLengthBytes : value_type(value.type).bytes;
    value.count = in.count("elements", least);
  }
  const std::size_t begin = in.position();
  pass_values(in, value.type, value.count);
  value.bytes = file.subspan(begin, in.position() - begin);
  return value;
}

std::uint32_t alignment_of(const std::vector<GgufValue>& metadata, Cursor& in) {
  const auto found = std::find_if(metadata.begin(), metadata.end(),
                                  [](const GgufValue& value) { return value.name == kAlignmentKey; });
  if (found == metadata.end()) return kDefaultAlignment;
  in.read("metadata " + detail::in_quotes(kAlignmentKey));
  if (found->type != GgufType::uint32 || found->is_array) {
    throw in.error("is " + gguf_type_text(*found) + ", expected uint32");
  }
  const auto alignment = value_at<std::uint32_t>(found->bytes.data());
  if (!std::has_single_bit(alignment)) {
    throw in.error("is " + std::to_string(alignment) + "; it must be a power of two");
  }
  return alignment;
}

/// A tensor as the header describes it.
struct Description {
  GgufTensor tensor;
  std::uint64_t offset = 0;
};

Description read_description(Cursor& in, std::size_t place) {
  Description description;
  GgufTensor& tensor = description.tensor;
  in.read("tensor " + std::to_string(place) + " of the header");
  tensor.name = in.text();
  in.read("tensor " + detail::in_quotes(tensor.name) + ":");
  const auto rank = in.number<std::uint32_t>();
  if (rank > GgufFile::max_rank) {
    throw in.error("has " + std::to_string(rank) + " dimensions, the limit is " +
                   std::to_string(GgufFile::max_rank));
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto size = in.number<std::uint64_t>();
    // Where std::size_t is shorter, what does not fit it becomes a size that no tensor has.
    tensor.shape.push_back(std::in_range<std::size_t>(size) ? static_cast<std::size_t>(size)
                                                            : TensorView::any_size);
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.type = static_cast<GgmlType>(in.number<std::uint32_t>());
  description.offset = in.number<std::uint64_t>();
  return description;
}

/// What a tensor takes of the data: its bytes, or the one byte that a tensor of an unknown type takes at
/// least.
std::size_t least_bytes(const Description& description, const std::filesystem::path& path) {
  const GgufTensor& tensor = description.tensor;
  const auto error = [&](const std::string& what) { return tensor_error(path, tensor.name, what); };
  std::size_t values = 0;
  std::size_t bytes = 0;
  const std::optional<GgmlBlock> block = ggml_block(tensor.type);
  const bool fits = tensor_bytes(1, tensor.shape, values);
  if (!fits || (block && !tensor_bytes(block->bytes, std::array{values / block->values}, bytes))) {
    throw error("shape " + shape_text(tensor.shape) + " has more values than this machine can address");
  }
  if (!block) return values == 0 ? 0 : 1;
  const std::size_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % block->values != 0) {
    throw error("has rows of " + std::to_string(row) + " values, " + ggml_type_name(tensor.type) +
                " has them in blocks of " + std::to_string(block->values));
  }
  return bytes;
}

/// Gives the tensors their bytes, once these are known to lie within `data` and to belong to no other.
std::vector<GgufTensor> placed(std::vector<Description> descriptions, std::span<const std::byte> data,
                               std::uint32_t alignment, const std::filesystem::path& path) {
  for (Description& description : descriptions) {
    GgufTensor& tensor = description.tensor;
    const std::uint64_t offset = description.offset;
    const auto error = [&](const std::string& what) { return tensor_error(path, tensor.name, what); };
    const std::size_t bytes = least_bytes(description, path);
    if (offset % alignment != 0) {
      throw error("begins at " + std::to_string(offset) + ", which is not a multiple of the alignment, " +
                  std::to_string(alignment));
    }
    if (offset > data.size() || bytes > data.size() - offset) {
      throw error("begins at " + std::to_string(offset) + " and takes " + std::to_string(bytes) +
                  " bytes; the data have " + std::to_string(data.size()));
    }
    tensor.bytes = data.subspan(static_cast<std::size_t>(offset), bytes);
  }
  // Ends break the ties of empty tensors, which lie before what begins where they do.
  std::stable_sort(descriptions.begin(), descriptions.end(), [](const Description& a, const Description& b) {
    return std::pair(a.offset, a.tensor.bytes.size()) < std::pair(b.offset, b.tensor.bytes.size());
  });
  std::vector<GgufTensor> tensors;
  tensors.reserve(descriptions.size());
  std::uint64_t end = 0;
  for (Description& description : descriptions) {
    GgufTensor& tensor = description.tensor;
    if (description.offset < end) {
      throw tensor_error(path, tensor.name,
                         "begins at " + std::to_string(description.offset) +
                             ", within the tensor before it, which ends at " + std::to_string(end));
    }
    end = description.offset + tensor.bytes.size();
    if (!ggml_block(tensor.type)) tensor.bytes = {};
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

double gguf_number(const GgufValue& value) {
  const std::byte* const bytes = value.bytes.data();
  switch (value.type) {
    case GgufType::uint8:
    case GgufType::boolean:
      return value_at<std::uint8_t>(bytes);
    case GgufType::int8:
      return value_at<std::int8_t>(bytes);
    case GgufType::uint16:
      return value_at<std::uint16_t>(bytes);
    case GgufType::int16:
      return value_at<std::int16_t>(bytes);
    case GgufType::uint32:
      return value_at<std::uint32_t>(bytes);
    case GgufType::int32:
      return value_at<std::int32_t>(bytes);
    case GgufType::float32:
      return static_cast<double>(value_at<float>(bytes));
    case GgufType::uint64:
      return static_cast<double>(value_at<std::uint64_t>(bytes));
    case GgufType::int64:
      return static_cast<double>(value_at<std::int64_t>(bytes));
    default:
      return value_at<double>(bytes);
  }
}

std::vector<std::string_view> gguf_texts(const GgufValue& value) {
  std::vector<std::string_view> texts;
  texts.reserve(value.count);
  std::span<const std::byte> rest = value.bytes;
  for (std::size_t i = 0; i < value.count; ++i) {
    const auto length = static_cast<std::size_t>(value_at<std::uint64_t>(rest.data()));
    texts.emplace_back(reinterpret_cast<const char*>(rest.data()) + kLengthBytes, length);
    rest = rest.subspan(kLengthBytes + length);
  }
  return texts;
}

std::string gguf_type_text(const GgufValue& value) {
  return (value.is_array ? "an array of " : "a ") + std::string(value_type(value.type).name);
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::filesystem::path& path) {
  require_little_endian(path.string());
  Cursor in(file, path);
  check_magic_and_version(in);
  const std::size_t tensor_count = in.count("tensors", kLeastTensorBytes);
  const std::size_t value_count = in.count("entries of metadata", kLeastValueBytes);

  GgufHeader header;
  std::set<std::string, std::less<>> names;
  for (std::size_t i = 0; i < value_count; ++i) {
    header.metadata.push_back(read_value(in, file, i));
    if (!names.insert(header.metadata.back().name).second) throw in.error("appears twice");
  }
  names.clear();
  std::vector<Description> descriptions;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    descriptions.push_back(read_description(in, i));
    if (!names.insert(descriptions.back().tensor.name).second) throw in.error("appears twice");
  }

  const std::uint32_t alignment = alignment_of(header.metadata, in);
  const std::size_t past = in.position() % alignment;
  const std::size_t padding = past == 0 ? 0 : alignment - past;
  // A file without data may end where its header does.
  const std::size_t begin = in.position() + std::min(padding, in.left());
  header.tensors = placed(std::move(descriptions), file.subspan(begin), alignment, path);
  return header;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
