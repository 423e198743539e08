// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::testing {

/// The file of a small model: float32 tensors of random values from −0.5 to 0.5, and vocabularies.
class ModelFile {
 public:
  struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<float> values;
  };

  std::map<std::string, Tensor> tensors;

  void add(const std::string& name, std::vector<std::size_t> shape) {
    Tensor& tensor = tensors[name];
    tensor.shape = std::move(shape);
    std::size_t size = 1;
    for (const std::size_t n : tensor.shape) size *= n;
    tensor.values.resize(size);
    for (float& value : tensor.values) value = static_cast<float>(random_.uniform() - 0.5);
  }

  /// PREFIX.*_SUFFIX, as PyTorch names them.
  void add_lstm(const std::string& prefix, const std::string& suffix, std::size_t inputs, std::size_t dim) {
    add(prefix + ".weight_ih_" + suffix, {4 * dim, inputs});
    add(prefix + ".weight_hh_" + suffix, {4 * dim, dim});
    add(prefix + ".bias_ih_" + suffix, {4 * dim});
    add(prefix + ".bias_hh_" + suffix, {4 * dim});
  }

  /// So many words, the second of which is "<eos>".
  void add_vocabulary(const std::string& name, std::size_t words) {
    std::string& text = vocabularies_[name];
    for (std::size_t i = 0; i < words; ++i) text += i == 1 ? "<eos>\n" : "w" + std::to_string(i) + "\n";
  }

  /// A language model of two layers, its embedding tied.
  static ModelFile language_model(std::size_t vocab, std::size_t dim) {
    ModelFile file;
    file.add("weight", {vocab, dim});
    file.add("bias", {vocab});
    file.add_lstm("lstm", "l0", dim, dim);
    file.add_lstm("lstm", "l1", dim, dim);
    file.add_vocabulary("vocab.utf8", vocab);
    return file;
  }

  /// Writes it with other tensors, in a file of its own each time.
  std::filesystem::path write(const TemporaryFolder& folder, std::vector<TensorView> views = {}) const {
    for (const auto& [name, tensor] : tensors) {
      views.push_back(tensor_view(name, tensor.shape, tensor.values));
    }
    for (const auto& [name, text] : vocabularies_) {
      views.push_back({.name = name,
                       .shape = {text.size()},
                       .bytes = std::as_bytes(std::span(text.data(), text.size()))});
    }
    std::filesystem::path path =
        folder.path() / ("model" + std::to_string(folder.list().size()) + ".safetensors");
    write_safetensors(path, views);
    return path;
  }

 private:
  RandomStream random_{1};
  std::map<std::string, std::string> vocabularies_;
};

/// A model file with one column more in a tensor, or one value.
inline ModelFile widened(ModelFile file, const std::string& name) {
  ModelFile::Tensor& tensor = file.tensors[name];
  const std::size_t rows = tensor.values.size() / tensor.shape.back();
  tensor.shape.back() += 1;
  tensor.values.resize(tensor.values.size() + rows);
  return file;
}

/// Expects a model's file to be right, and error_of(file) to name each tensor of another shape.
template <class ErrorOf>
void expect_shapes_are_checked(const ModelFile& file, const ErrorOf& error_of) {
  EXPECT_EQ(error_of(file), "");
  for (const auto& [name, tensor] : file.tensors) {
    if (name == "weight") continue;  // which the others must agree with
    const std::string error = error_of(widened(file, name));
    EXPECT_NE(error.find("tensor \"" + name + "\": shape is"), std::string::npos) << name << ": " << error;
  }
}

}  // namespace topksoftmax::testing
