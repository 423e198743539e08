// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The element types of safetensors. Of those after F64 this library knows the names alone: a file may have
/// tensors of them, whose values are not read.
enum class DataType : std::uint8_t {
  boolean,          ///< BOOL, one byte
  uint8,            ///< U8
  int8,             ///< I8
  uint16,           ///< U16
  int16,            ///< I16
  float16,          ///< F16
  bfloat16,         ///< BF16
  uint32,           ///< U32
  int32,            ///< I32
  float32,          ///< F32
  uint64,           ///< U64
  int64,            ///< I64
  float64,          ///< F64
  complex64,        ///< C64
  float8_e4m3,      ///< F8_E4M3
  float8_e4m3fnuz,  ///< F8_E4M3FNUZ
  float8_e5m2,      ///< F8_E5M2
  float8_e5m2fnuz,  ///< F8_E5M2FNUZ
  float8_e8m0,      ///< F8_E8M0
  float6_e2m3,      ///< F6_E2M3
  float6_e3m2,      ///< F6_E3M2
  float4,           ///< F4
};

/// The format's name of the type: "F16", "I32", …
inline std::string_view data_type_name(DataType type) {
  constexpr std::array<std::string_view, 22> names = {
      "BOOL",    "U8",          "I8",      "U16",     "I16",     "F16", "BF16",    "U32",
      "I32",     "F32",         "U64",     "I64",     "F64",     "C64", "F8_E4M3", "F8_E4M3FNUZ",
      "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"};
  return names[static_cast<std::size_t>(type)];
}

/// Bytes of one element; 0 for the types whose values are not read.
inline std::size_t data_type_size(DataType type) {
  constexpr std::array<std::size_t, 13> sizes = {1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};
  const auto place = static_cast<std::size_t>(type);
  return place < sizes.size() ? sizes[place] : 0;
}

/// The DataType that holds values of the C++ type T.
template <class T>
inline constexpr DataType data_type_of = [] {
  if constexpr (std::is_same_v<T, std::uint8_t>) return DataType::uint8;
  if constexpr (std::is_same_v<T, std::int8_t>) return DataType::int8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DataType::uint16;
  if constexpr (std::is_same_v<T, std::int16_t>) return DataType::int16;
  if constexpr (std::is_same_v<T, Eigen::half>) return DataType::float16;
  if constexpr (std::is_same_v<T, Eigen::bfloat16>) return DataType::bfloat16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DataType::uint32;
  if constexpr (std::is_same_v<T, std::int32_t>) return DataType::int32;
  if constexpr (std::is_same_v<T, float>) return DataType::float32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DataType::uint64;
  if constexpr (std::is_same_v<T, std::int64_t>) return DataType::int64;
  if constexpr (std::is_same_v<T, double>) return DataType::float64;
}();

/// A named array of values that something else owns: the file that it was read from, or the code that
/// writes it.
struct TensorView {
  /// Its name in the file.
  std::string name;
  /// The type of its values.
  DataType type = DataType::uint8;
  std::vector<std::size_t> shape;  ///< row-major; empty: one value
  /// Π shape × data_type_size(type) of them, little-endian; of a type whose values are not read, as many as a
  /// file says.
  std::span<const std::byte> bytes;

  /// Stands for any size in an expected shape.
  static constexpr std::size_t any_size = static_cast<std::size_t>(-1);

  /// Number of values.
  std::size_t size() const {
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    return count;
  }
};

/// A view of `values` (contiguous: a span, a vector) as a tensor of this name and shape.
template <class Values>
TensorView tensor_view(std::string name, std::vector<std::size_t> shape, const Values& values) {
  const std::span span(values);
  using T = typename decltype(span)::value_type;
  return {std::move(name), data_type_of<T>, std::move(shape), std::as_bytes(span)};
}

/// Free text about tensors, by key.
using TensorMetadata = std::map<std::string, std::string, std::less<>>;

/// A shape as text: "[10000, 200]"; TensorView::any_size as "*".
inline std::string shape_text(std::span<const std::size_t> shape) {
  std::string text = "[";
  for (const std::size_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += size == TensorView::any_size ? "*" : std::to_string(size);
  }
  return text + "]";
}

}  // namespace TOPKSOFTMAX_NAMESPACE
