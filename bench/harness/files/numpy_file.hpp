// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// The arrays of a file that NumPy's save() or savez() has written: .npy, or .npz, compressed or not.
///
/// Opening it reads all of it. Arrays in column-major order are transposed. Every failure is an Error that
/// names the file. Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
class NumpyFile {
 public:
  /// Whether the file begins as one of the two does.
  static bool recognises(const std::filesystem::path& path);

  /// Throws Error where it cannot be read or breaks the format; where an array has another byte order than
  /// this machine's, fields or objects; and for .npz without libzip.
  static NumpyFile open(const std::filesystem::path& path);

  /// Whether something that begins with this byte may be a .npy: text does not.
  static bool begins(int byte) { return byte == 0x93; }

  /// Reads a .npy from a stream, which messages call by this name. Throws Error as open().
  static NumpyFile read(std::istream& stream, const std::string& name);

  const std::filesystem::path& path() const { return path_; }

  /// Views that stay valid as long as storage() lives. The one of a .npy has the file's name without ".npy".
  const std::vector<TensorView>& tensors() const { return tensors_; }

  /// Whether the arrays have names of their own: those of an .npz do.
  bool is_archive() const { return is_archive_; }

  bool contains(std::string_view name) const { return index_.contains(name); }

  /// The array of this name; Error where there is none.
  const TensorView& tensor(std::string_view name) const;

  /// An array of two dimensions as float32, a copy; of float16, float32 or float64, which is rounded. Throws
  /// Error for a float64 that is beyond float32's range.
  RowMajorMatrix matrix(std::string_view name) const;

  /// An array of one dimension, likewise.
  Eigen::VectorXf vector(std::string_view name) const;

  /// What keeps the views' bytes alive.
  std::shared_ptr<const void> storage() const { return storage_; }

  /// An Error about an array of this file.
  Error error(std::string_view name, std::string_view what) const;

 private:
  using Storage = std::vector<std::vector<std::byte>>;

  void add(std::string name, std::vector<std::byte> file);
  void read_archive();

  std::filesystem::path path_;
  bool is_archive_ = false;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< the place of each
  std::shared_ptr<Storage> storage_ = std::make_shared<Storage>();
};

}  // namespace topksoftmax::bench
