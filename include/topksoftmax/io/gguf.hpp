// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The types of GGUF's tensors, by ggml's numbers. A file may have numbers that are not among these: types
/// whose blocks this library does not know.
enum class GgmlType : std::uint32_t {
  float32 = 0,
  float16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  int8 = 24,
  int16 = 25,
  int32 = 26,
  int64 = 27,
  float64 = 28,
  bfloat16 = 30,
};

/// What a type stores together: so many values of a row in so many bytes.
struct GgmlBlock {
  /// Weights of a block.
  std::size_t values;
  /// Bytes of a block.
  std::size_t bytes;
};

/// The blocks of a type, {1, bytes of a value} for those without; nothing for types that are not known.
TOPKSOFTMAX_EXPORT std::optional<GgmlBlock> ggml_block(GgmlType type);

/// ggml's name of the type: "F16", "Q6_K"; "type 16" for those that are not known.
TOPKSOFTMAX_EXPORT std::string ggml_type_name(GgmlType type);

/// The types of GGUF's metadata, by its numbers.
enum class GgufType : std::uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};

/// An entry of the metadata.
struct GgufValue {
  /// Its key.
  std::string name;
  GgufType type = GgufType::uint8;   ///< of an array, that of its elements
  bool is_array = false;             ///< of any length; arrays of arrays are refused
  std::size_t count = 1;             ///< elements of an array
  std::span<const std::byte> bytes;  ///< where it lies in the file, at any byte
};

/// A tensor of a GGUF file.
struct GgufTensor {
  /// Its name in the file.
  std::string name;
  /// The type of its weights.
  GgmlType type = GgmlType::float32;
  std::vector<std::size_t> shape;  ///< row-major: [V, d], where GGUF writes d first; empty: one value
  /// The blocks of all rows, one after the other; none where the type is not known, as nobody can tell then
  /// how many bytes the tensor has.
  std::span<const std::byte> bytes;
};

/// A GGUF file, as llama.cpp reads them, mapped into memory and read-only: versions 2 and 3, little-endian.
///
/// Opening it reads and checks all that stands before the tensors' bytes, so that no size or offset is used
/// before it is known to be right. What cannot be checked is where a tensor of an unknown type ends: such
/// tensors are listed, and not given out. Cost: O(bytes before the tensors), 5 to 15 MB in today's models,
/// most of which is their vocabulary. Every failure is an Error that names the file, the tensor or entry, the
/// value found and the limit. Copies share the mapping; views stay valid as long as a copy or storage()
/// lives. The file may be replaced or removed while it is open, but must not be changed in place or
/// shortened.
///
/// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
class TOPKSOFTMAX_EXPORT GgufFile {
 public:
  /// The most sizes that a tensor's shape has.
  static constexpr std::size_t max_rank = 4;

  /// Opens `path`. Throws Error where it cannot be read or breaks the format: another version or byte order,
  /// counts or lengths beyond the file, unknown types of metadata, names twice, an alignment that is not a
  /// power of two, more than max_rank sizes, rows that are not a whole number of blocks, sizes that overflow,
  /// offsets that are not aligned, overlap or lead past the end.
  static GgufFile open(const std::filesystem::path& path);

  /// Whether a file begins as GGUF files do. False where it cannot be read.
  static bool recognises(const std::filesystem::path& path);

  /// The file that was opened.
  const std::filesystem::path& path() const { return path_; }

  /// The metadata, in the order of the file.
  const std::vector<GgufValue>& metadata() const { return metadata_; }

  /// A number or truth value (0 or 1) of the metadata, where there is one of this name; integers beyond 2^53
  /// are rounded. Error where it is text or an array.
  std::optional<double> number(std::string_view name) const;

  /// A text of the metadata, as it lies in the file, where there is one of this name. Error where it is
  /// something else.
  std::optional<std::string_view> text(std::string_view name) const;

  /// An array of texts, as they lie in the file; "tokenizer.ggml.tokens" is the vocabulary. Likewise.
  std::optional<std::vector<std::string_view>> texts(std::string_view name) const;

  /// The tensors, in the order of their bytes.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  /// Whether there is a tensor of this name, of a known type or not.
  bool contains(std::string_view name) const { return tensor_index_.contains(name); }

  /// The tensor of this name; Error if there is none, or its type is not known.
  const GgufTensor& tensor(std::string_view name) const;

  /// What keeps the views' bytes alive.
  std::shared_ptr<const void> storage() const { return storage_; }

  /// An Error about a tensor of this file: "FILE: tensor "NAME": WHAT".
  Error error(std::string_view tensor_name, std::string_view what) const;

 private:
  using Index = std::map<std::string, std::size_t, std::less<>>;

  GgufFile() = default;
  const GgufValue* find(std::string_view name) const;
  Error type_error(const GgufValue& value, std::string_view expected) const;

  std::filesystem::path path_;
  std::vector<GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  Index metadata_index_;
  Index tensor_index_;
  std::shared_ptr<const void> storage_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
