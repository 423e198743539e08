// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/io/file_access.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A safetensors file, mapped into memory or copied there, and read-only.
///
/// Opening it reads and checks the whole header, so that no size or offset is used before it is known to be
/// right; the values themselves are read when they are asked for. Every failure is an Error that names the
/// file, the tensor, the value found and the limit. Tensors of the types that DataType has but that are not
/// read (F8_E4M3, F4, …) are listed, and not given out. Copies share the bytes; views stay valid as long as a
/// copy or storage() lives. FileAccess says what may become of the file while it is open.
///
/// Format: https://huggingface.co/docs/safetensors
class TOPKSOFTMAX_EXPORT SafetensorsFile {
 public:
  /// Stands for any size in an expected shape.
  static constexpr std::size_t any_size = TensorView::any_size;

  /// The longest header that is read, as in the format's reference implementation.
  static constexpr std::size_t max_header_bytes = 100'000'000;

  /// Opens `path`. Throws Error where it cannot be read or breaks the format: header longer than the file or
  /// the limit, malformed JSON, a key twice, element types that DataType does not have, negative,
  /// overflowing, overlapping or missing offsets, bytes that do not match shape and type (where its values
  /// are read), bytes that belong to no tensor.
  static SafetensorsFile open(const std::filesystem::path& path, FileAccess access = FileAccess::mapped);

  /// The same for the bytes of such a file, wherever they were read; `storage` keeps them, and errors call
  /// them `path`.
  static SafetensorsFile of(const std::filesystem::path& path, std::span<const std::byte> bytes,
                            std::shared_ptr<const void> storage);

  /// The file that was opened.
  const std::filesystem::path& path() const { return path_; }
  /// Its metadata: names and texts.
  const TensorMetadata& metadata() const { return metadata_; }

  /// The tensors, in the order of their bytes, those of types that are not read among them.
  const std::vector<TensorView>& tensors() const { return tensors_; }

  /// Whether it has a tensor of this name, of a type that is read or not.
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// The tensor of this name; Error if there is none, or its values are not read.
  const TensorView& tensor(std::string_view name) const;

  /// The tensor of this name; Error as above, and if its shape is not `shape` (any_size matches every size).
  const TensorView& tensor(std::string_view name, std::span<const std::size_t> shape) const;

  /// Copies the values of a tensor to `out`, which has room for exactly these, as T: float, double, int32_t
  /// or int64_t. No value is altered: Error where the stored type, or the value of a wider integer type, does
  /// not fit T.
  template <class T>
  void read(std::string_view name, std::span<T> out) const;

  /// The values of a tensor where they lie in the file. Error unless they are stored as T, and aligned for
  /// it.
  template <class T>
  std::span<const T> values(std::string_view name) const {
    const TensorView& view = tensor(name);
    check_layout(view, data_type_of<T>, alignof(T));
    return {reinterpret_cast<const T*>(view.bytes.data()), view.size()};
  }

  /// A tensor of two dimensions as float32, a copy; stored as F32, F16, BF16 or integers of at most 16 bits.
  RowMajorMatrix matrix(std::string_view name) const {
    constexpr std::size_t two_dimensions[] = {any_size, any_size};
    const TensorView& view = tensor(name, two_dimensions);
    RowMajorMatrix out(static_cast<Eigen::Index>(view.shape[0]), static_cast<Eigen::Index>(view.shape[1]));
    read(name, std::span<float>(out.data(), static_cast<std::size_t>(out.size())));
    return out;
  }

  /// A tensor of one dimension as float32, a copy; stored types as for matrix().
  Eigen::VectorXf vector(std::string_view name) const {
    constexpr std::size_t one_dimension[] = {any_size};
    Eigen::VectorXf out(static_cast<Eigen::Index>(tensor(name, one_dimension).shape[0]));
    read(name, std::span<float>(out.data(), static_cast<std::size_t>(out.size())));
    return out;
  }

  /// What keeps the views' bytes alive.
  std::shared_ptr<const void> storage() const { return storage_; }

  /// An Error about a tensor of this file: "FILE: tensor "NAME": WHAT".
  Error error(std::string_view tensor_name, std::string_view what) const;

 private:
  SafetensorsFile() = default;
  const TensorView* find(std::string_view name) const;
  void check_layout(const TensorView& view, DataType type, std::size_t alignment) const;

  std::filesystem::path path_;
  TensorMetadata metadata_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::shared_ptr<const void> storage_;
};

extern template TOPKSOFTMAX_EXPORT void SafetensorsFile::read(std::string_view, std::span<float>) const;
extern template TOPKSOFTMAX_EXPORT void SafetensorsFile::read(std::string_view, std::span<double>) const;
extern template TOPKSOFTMAX_EXPORT void SafetensorsFile::read(std::string_view,
                                                              std::span<std::int32_t>) const;
extern template TOPKSOFTMAX_EXPORT void SafetensorsFile::read(std::string_view,
                                                              std::span<std::int64_t>) const;

/// Writes a safetensors file. Each tensor begins at a multiple of 64 bytes, so that it can be used where it
/// lies in the mapped file; tensors of bytes named "__padding__…", which SafetensorsFile passes over, fill
/// the gaps.
///
/// The file is written beside `path`, synced, and renamed: on any failure (Error) the old file stays whole
/// and nothing is left behind. Names must be UTF-8, different from each other, and must not begin with "__";
/// types must be ones that are read.
TOPKSOFTMAX_EXPORT void write_safetensors(const std::filesystem::path& path,
                                          std::span<const TensorView> tensors,
                                          const TensorMetadata& metadata = {});

}  // namespace TOPKSOFTMAX_NAMESPACE
