// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/contexts_file.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

constexpr Eigen::Index kMostTest = 10'000;

constexpr std::array<const char*, 2> kTrain = {"contexts.train", "contexts_train"};
constexpr std::array<const char*, 2> kTest = {"contexts.test", "contexts_test"};
constexpr std::array<const char*, 1> kAll = {"contexts"};

/// Asks a file of either format.
template <class Ask>
auto with_arrays(const std::filesystem::path& path, const Ask& ask) {
  return NumpyFile::recognises(path) ? ask(NumpyFile::open(path)) : ask(SafetensorsFile::open(path));
}

/// An Error about an array that is no matrix. The only one goes by the file's name: that of a .npy has no
/// other.
template <class File>
Error no_matrix(const File& file, const TensorView& array, const SoftmaxLayer& layer) {
  const std::string name = file.tensors().size() == 1 ? "" : array.name + " ";
  return Error(file.path().string() + ": " + name + "has the shape " + shape_text(array.shape) +
               "; contexts must be [N, " + std::to_string(layer.dim()) + "]");
}

/// The matrix of the first of these names that is there; one without rows where none is.
template <class File, std::size_t count>
RowMajorMatrix matrix_of(const File& file, const std::array<const char*, count>& names,
                         const SoftmaxLayer& layer) {
  for (const char* const name : names) {
    if (!file.contains(name)) continue;
    const TensorView& array = file.tensor(name);
    if (array.shape.size() != 2) throw no_matrix(file, array, layer);
    RowMajorMatrix contexts = file.matrix(name);
    const auto length = static_cast<std::size_t>(contexts.cols());
    if (length != layer.dim()) {
      throw Error(file.path().string() + ": " + name + " holds contexts of length " + std::to_string(length) +
                  "; " + detail::other_dimension(length, layer));
    }
    check_finite(file.path(), name, contexts);
    return contexts;
  }
  return RowMajorMatrix(0, static_cast<Eigen::Index>(layer.dim()));
}

/// Whether a matrix of this name is weights, and no contexts.
bool names_weights(std::string_view name) {
  return name == "weight" || name == "W" || name.ends_with(".weight") || name.starts_with("lm_head");
}

/// Whether arrays have names of their own: that of a .npy goes by the file's.
bool has_names(const NumpyFile& file) {
  return file.is_archive();
}
bool has_names(const SafetensorsFile&) {
  return true;
}

/// Some names for people to choose from; of many, how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + detail::in_quotes(names[i]);
  }
  return names.size() <= kShown ? text : text + " and " + std::to_string(names.size() - kShown) + " more";
}

/// The contexts that are not told apart.
template <class File>
RowMajorMatrix undivided(const File& file, const SoftmaxLayer& layer) {
  RowMajorMatrix contexts = matrix_of(file, kAll, layer);
  if (contexts.rows() > 0) return contexts;
  std::vector<std::string> matrices;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.shape.size() == 2) matrices.push_back(tensor.name);
  }
  if (matrices.size() == 1) {
    if (names_weights(matrices.front()) && has_names(file)) {
      throw Error(file.path().string() + ": holds no contexts; its only matrix, " +
                  detail::in_quotes(matrices.front()) + ", has the name of weights");
    }
    return matrix_of(file, std::array{matrices.front().c_str()}, layer);
  }
  if (file.tensors().size() == 1) throw no_matrix(file, file.tensors().front(), layer);
  throw Error(
      file.path().string() +
      ": which array holds contexts? One must be named contexts, or contexts.train and contexts.test" +
      (matrices.empty() ? "; there is no matrix" : "; there are " + listed(matrices)));
}

/// What is to be answered.
template <class File>
RowMajorMatrix asked_of(const File& file, const SoftmaxLayer& layer) {
  RowMajorMatrix contexts = matrix_of(file, kTest, layer);
  return contexts.rows() > 0 ? contexts : undivided(file, layer);
}

ContextSets divided(const RowMajorMatrix& contexts) {
  const Eigen::Index test = std::min((contexts.rows() + 4) / 5, kMostTest);
  return {
      .train = contexts.topRows(contexts.rows() - test), .test = contexts.bottomRows(test), .divided = true};
}

}  // namespace

bool has_named_contexts(const NumpyFile& file) {
  const auto any = [&file](const auto& names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return file.contains(name); });
  };
  return any(kTrain) || any(kTest) || any(kAll);
}

Error no_contexts_in(const std::string& file) {
  return Error(file + ": holds no contexts");
}

void check_finite(const std::filesystem::path& file, const std::string& array, const RowMajorMatrix& values) {
  const auto size = static_cast<std::size_t>(values.size());
  const std::size_t first = detail::first_not_finite(values.data(), size);
  if (first == size) return;
  const auto dim = static_cast<std::size_t>(values.cols());
  throw Error(file.string() + ": " + array + "[" + std::to_string(first / dim) + ", " +
              std::to_string(first % dim) + "] is " + detail::value_text(values.data()[first]) +
              "; it must be finite");
}

ContextSets load_contexts(const std::filesystem::path& path, const SoftmaxLayer& layer) {
  return with_arrays(path, [&](const auto& file) {
    ContextSets sets = {.train = matrix_of(file, kTrain, layer), .test = matrix_of(file, kTest, layer)};
    if (sets.train.rows() > 0 || sets.test.rows() > 0) return sets;
    const RowMajorMatrix contexts = undivided(file, layer);
    if (contexts.rows() == 0) throw no_contexts_in(path.string());
    return divided(contexts);
  });
}

RowMajorMatrix load_all_contexts(const std::filesystem::path& path, const SoftmaxLayer& layer) {
  return with_arrays(path, [&layer](const auto& file) { return asked_of(file, layer); });
}

RowMajorMatrix contexts_of(const NumpyFile& file, const SoftmaxLayer& layer) {
  return asked_of(file, layer);
}

}  // namespace topksoftmax::bench
