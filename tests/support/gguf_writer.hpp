// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace topksoftmax::testing {

/// The bytes of a number, as it lies in memory.
template <class T>
std::string number_bytes(T value) {
  static_assert(std::is_arithmetic_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

/// Puts GGUF files together by the format's description, whether they are right or not.
class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::size_t alignment = 32;  ///< by which data are laid out; metadata say it only where it is added

  static std::string text(std::string_view value) {
    return number_bytes<std::uint64_t>(value.size()) + std::string(value);
  }

  /// An entry of the metadata: its type, and its bytes behind that.
  GgufWriter& value(std::string_view name, std::uint32_t type, const std::string& bytes) {
    values_.push_back(text(name) + number_bytes(type) + bytes);
    return *this;
  }
  GgufWriter& value(std::string_view name, std::string_view content) { return value(name, 8, text(content)); }
  GgufWriter& value(std::string_view name, float number) { return value(name, 6, number_bytes(number)); }
  GgufWriter& value(std::string_view name, std::uint32_t number) {
    return value(name, 4, number_bytes(number));
  }
  GgufWriter& array(std::string_view name, std::uint32_t type, std::uint64_t count,
                    const std::string& bytes) {
    return value(name, 9, number_bytes(type) + number_bytes(count) + bytes);
  }

  /// A tensor with the sizes as GGUF writes them, the fastest first, at the next aligned place.
  GgufWriter& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                     const std::string& bytes) {
    tensor_at(name, sizes, type, data_.size());
    data_ += bytes;
    if (alignment != 0) data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  /// The same at any place, with no data of its own.
  GgufWriter& tensor_at(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                        std::uint64_t offset) {
    std::string info = text(name) + number_bytes(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) info += number_bytes(size);
    tensors_.push_back(info + number_bytes(type) + number_bytes(offset));
    return *this;
  }
  /// Has the file claim other counts than were added.
  GgufWriter& claiming_tensors(std::uint64_t count) {
    claimed_tensors_ = count;
    return *this;
  }
  GgufWriter& claiming_values(std::uint64_t count) {
    claimed_values_ = count;
    return *this;
  }

  GgufWriter& data(const std::string& bytes) {
    data_ += bytes;
    return *this;
  }

  /// All before the padding and the data.
  std::string header() const {
    std::string file = "GGUF" + number_bytes(version) +
                       number_bytes<std::uint64_t>(claimed_tensors_.value_or(tensors_.size())) +
                       number_bytes<std::uint64_t>(claimed_values_.value_or(values_.size()));
    for (const std::string& value : values_) file += value;
    for (const std::string& tensor : tensors_) file += tensor;
    return file;
  }

  std::string bytes() const {
    std::string file = header();
    if (alignment != 0) file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::optional<std::uint64_t> claimed_tensors_;
  std::optional<std::uint64_t> claimed_values_;
  std::vector<std::string> values_;
  std::vector<std::string> tensors_;
  std::string data_;
};

}  // namespace topksoftmax::testing
