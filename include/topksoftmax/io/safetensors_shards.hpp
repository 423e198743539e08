// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
#include "topksoftmax/io/safetensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The tensors of a checkpoint: those of one safetensors file, or of several whose
/// model.safetensors.index.json says which holds what.
///
/// All files are mapped and their headers checked when it is opened, and every tensor of the index is found
/// in its file; values are read when they are asked for. Every failure is an Error that names the file.
/// Copies share the mappings; for views, and for files that change, see SafetensorsFile.
class TOPKSOFTMAX_EXPORT SafetensorsShards {
 public:
  /// The longest index that is read.
  static constexpr std::size_t max_index_bytes = 100'000'000;

  /// Opens an index, whose name ends in .json, with the files beside it that it names, or else one
  /// safetensors file. Cost: reads the index and all headers.
  ///
  /// Throws Error where one of the files cannot be opened as SafetensorsFile; for an index that is too long,
  /// is not valid JSON or has no weight_map from names of tensors to names of files; where such a name is
  /// empty, ".", ".." or leads into another folder; and where a file lacks a tensor that the index has in it.
  static SafetensorsShards open(const std::filesystem::path& path);

  /// The path that was opened.
  const std::filesystem::path& path() const { return path_; }

  /// The files, each once, by their names.
  const std::vector<SafetensorsFile>& files() const { return files_; }

  /// Whether any of the files has a tensor of this name.
  bool contains(std::string_view name) const { return index_.contains(name); }

  /// The file that holds the tensor of this name; Error if there is none.
  const SafetensorsFile& file(std::string_view name) const;

  /// The tensor of this name; Error if there is none, or its values are not read.
  const TensorView& tensor(std::string_view name) const { return file(name).tensor(name); }

  /// The tensor of this name; Error as above, and if its shape is not `shape` (any_size matches every size).
  const TensorView& tensor(std::string_view name, std::span<const std::size_t> shape) const {
    return file(name).tensor(name, shape);
  }

  /// What keeps the bytes of this tensor alive; Error if there is none.
  std::shared_ptr<const void> storage(std::string_view name) const { return file(name).storage(); }

 private:
  SafetensorsShards() = default;

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< the place of a tensor's file
};

}  // namespace TOPKSOFTMAX_NAMESPACE
