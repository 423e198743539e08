// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/safetensors.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "io/file_bytes.hpp"
#include "io/safetensors_header.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

/// Whether every value of From is a value of To.
template <class To, class From>
constexpr bool always_fits() {
  using ToLimits = std::numeric_limits<To>;
  using FromLimits = std::numeric_limits<From>;
  if constexpr (!std::is_integral_v<To>) {
    return FromLimits::digits <= ToLimits::digits && FromLimits::max_exponent <= ToLimits::max_exponent;
  } else if constexpr (std::is_integral_v<From>) {
    return std::in_range<To>(FromLimits::min()) && std::in_range<To>(FromLimits::max());
  } else {
    return false;
  }
}

/// Whether this integer is a value of To, and for a floating-point To so are all the smaller ones.
template <class To, class From>
bool fits(From value) {
  if constexpr (std::is_integral_v<To>) {
    return std::in_range<To>(value);
  } else {
    constexpr auto most = std::int64_t{1} << std::numeric_limits<To>::digits;
    return std::cmp_less_equal(value, most) && std::cmp_greater_equal(value, -most);
  }
}

template <class To, class From>
void convert(const SafetensorsFile& file, const TensorView& view, std::span<To> out) {
  const std::byte* const in = view.bytes.data();
  if constexpr (always_fits<To, From>() || std::is_integral_v<From>) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto value = detail::value_at<From>(in, i);  // a file may put a tensor at any byte
      if constexpr (!always_fits<To, From>()) {
        if (!fits<To>(value)) {
          throw file.error(view.name, "value " + std::to_string(i) + " is " + std::to_string(value) +
                                          ", which " + std::string(data_type_name(data_type_of<To>)) +
                                          " cannot hold");
        }
      }
      out[i] = static_cast<To>(value);
    }
  } else {
    throw file.error(view.name, "is stored as " + std::string(data_type_name(view.type)) +
                                    ", which cannot be read as " +
                                    std::string(data_type_name(data_type_of<To>)) + " without loss");
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path, FileAccess access) {
  const FileBytes read = read_file(path, access);
  return of(path, read.bytes, read.storage);
}

SafetensorsFile SafetensorsFile::of(const std::filesystem::path& path, std::span<const std::byte> bytes,
                                    std::shared_ptr<const void> storage) {
  SafetensorsHeader header = parse_safetensors_header(bytes, path);

  SafetensorsFile file;
  file.path_ = path;
  file.metadata_ = std::move(header.metadata);
  file.tensors_ = std::move(header.tensors);
  std::erase_if(file.tensors_,
                [](const TensorView& tensor) { return tensor.name.starts_with(kPaddingPrefix); });
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.index_.emplace(file.tensors_[i].name, i);
  file.storage_ = std::move(storage);
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& SafetensorsFile::tensor(std::string_view name) const {
  const TensorView* const found = find(name);
  if (found == nullptr) throw no_tensor_error(path_, name, index_);
  if (data_type_size(found->type) == 0) {
    throw error(name, "is stored as " + std::string(data_type_name(found->type)) +
                          ", which this library does not read");
  }
  return *found;
}

const TensorView& SafetensorsFile::tensor(std::string_view name, std::span<const std::size_t> shape) const {
  const TensorView& view = tensor(name);
  const bool matches = std::equal(
      view.shape.begin(), view.shape.end(), shape.begin(), shape.end(),
      [](std::size_t size, std::size_t expected) { return expected == any_size || size == expected; });
  if (!matches) throw error(name, "shape is " + shape_text(view.shape) + ", expected " + shape_text(shape));
  return view;
}

Error SafetensorsFile::error(std::string_view tensor_name, std::string_view what) const {
  return tensor_error(path_, tensor_name, what);
}

void SafetensorsFile::check_layout(const TensorView& view, DataType type, std::size_t alignment) const {
  if (view.type != type) {
    throw error(view.name, "is stored as " + std::string(data_type_name(view.type)) + ", expected " +
                               std::string(data_type_name(type)));
  }
  if (reinterpret_cast<std::uintptr_t>(view.bytes.data()) % alignment != 0) {
    throw error(view.name, "does not begin at a multiple of " + std::to_string(alignment) + " bytes");
  }
}

template <class T>
void SafetensorsFile::read(std::string_view name, std::span<T> out) const {
  const TensorView& view = tensor(name);
  if (view.size() != out.size()) {
    throw error(name,
                "has " + std::to_string(view.size()) + " values, expected " + std::to_string(out.size()));
  }
  switch (view.type) {
    case DataType::boolean:
    case DataType::uint8:
      return convert<T, std::uint8_t>(*this, view, out);
    case DataType::int8:
      return convert<T, std::int8_t>(*this, view, out);
    case DataType::uint16:
      return convert<T, std::uint16_t>(*this, view, out);
    case DataType::int16:
      return convert<T, std::int16_t>(*this, view, out);
    case DataType::float16:
      return convert<T, detail::Float16>(*this, view, out);
    case DataType::bfloat16:
      return convert<T, detail::Bfloat16>(*this, view, out);
    case DataType::uint32:
      return convert<T, std::uint32_t>(*this, view, out);
    case DataType::int32:
      return convert<T, std::int32_t>(*this, view, out);
    case DataType::float32:
      return convert<T, float>(*this, view, out);
    case DataType::uint64:
      return convert<T, std::uint64_t>(*this, view, out);
    case DataType::int64:
      return convert<T, std::int64_t>(*this, view, out);
    case DataType::float64:
      return convert<T, double>(*this, view, out);
    default:
      return;  // tensor() gives out no other
  }
}

template void SafetensorsFile::read(std::string_view, std::span<float>) const;
template void SafetensorsFile::read(std::string_view, std::span<double>) const;
template void SafetensorsFile::read(std::string_view, std::span<std::int32_t>) const;
template void SafetensorsFile::read(std::string_view, std::span<std::int64_t>) const;

}  // namespace TOPKSOFTMAX_NAMESPACE
