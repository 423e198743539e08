// SPDX-License-Identifier: Apache-2.0
#include "harness/contexts_file.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/io/safetensors.hpp"

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
Error no_contexts(const File& file, const TensorView& array, std::size_t dim) {
  const std::string name = file.tensors().size() == 1 ? "" : array.name + " ";
  return Error(file.path().string() + ": " + name + "has the shape " + shape_text(array.shape) +
               "; contexts must be [N, " + std::to_string(dim) + "]");
}

/// The matrix of the first of these names that is there; one without rows where none is.
template <class File, std::size_t count>
RowMajorMatrix matrix_of(const File& file, const std::array<const char*, count>& names, std::size_t dim) {
  for (const char* const name : names) {
    if (!file.contains(name)) continue;
    const TensorView& array = file.tensor(name);
    if (array.shape.size() != 2) throw no_contexts(file, array, dim);
    RowMajorMatrix contexts = file.matrix(name);
    if (contexts.cols() != static_cast<Eigen::Index>(dim)) {
      throw Error(file.path().string() + ": " + name + " holds contexts of length " +
                  std::to_string(contexts.cols()) + "; those of the head have " + std::to_string(dim));
    }
    return contexts;
  }
  return RowMajorMatrix(0, static_cast<Eigen::Index>(dim));
}

/// The contexts that are not told apart.
template <class File>
RowMajorMatrix undivided(const File& file, std::size_t dim) {
  RowMajorMatrix contexts = matrix_of(file, kAll, dim);
  if (contexts.rows() > 0) return contexts;
  std::vector<std::string> matrices;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.shape.size() == 2) matrices.push_back(tensor.name);
  }
  if (matrices.size() == 1) return matrix_of(file, std::array{matrices.front().c_str()}, dim);
  if (file.tensors().size() == 1) throw no_contexts(file, file.tensors().front(), dim);
  std::string names;
  for (const std::string& name : matrices) names += (names.empty() ? "" : ", ") + detail::in_quotes(name);
  throw Error(
      file.path().string() +
      ": which array holds contexts? One must be named contexts, or contexts.train and contexts.test" +
      (names.empty() ? "; there is no matrix" : "; there are " + names));
}

/// What is to be answered.
template <class File>
RowMajorMatrix asked_of(const File& file, std::size_t dim) {
  RowMajorMatrix contexts = matrix_of(file, kTest, dim);
  return contexts.rows() > 0 ? contexts : undivided(file, dim);
}

ContextSets divided(const RowMajorMatrix& contexts) {
  const Eigen::Index test = std::min((contexts.rows() + 4) / 5, kMostTest);
  return {.train = contexts.topRows(contexts.rows() - test), .test = contexts.bottomRows(test)};
}

}  // namespace

bool has_named_contexts(const NumpyFile& file) {
  const auto any = [&file](const auto& names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return file.contains(name); });
  };
  return any(kTrain) || any(kTest) || any(kAll);
}

ContextSets load_contexts(const std::filesystem::path& path, std::size_t dim) {
  return with_arrays(path, [dim](const auto& file) {
    ContextSets sets = {.train = matrix_of(file, kTrain, dim), .test = matrix_of(file, kTest, dim)};
    if (sets.train.rows() > 0 || sets.test.rows() > 0) return sets;
    return divided(undivided(file, dim));
  });
}

RowMajorMatrix load_all_contexts(const std::filesystem::path& path, std::size_t dim) {
  return with_arrays(path, [dim](const auto& file) { return asked_of(file, dim); });
}

RowMajorMatrix contexts_of(const NumpyFile& file, std::size_t dim) {
  return asked_of(file, dim);
}

}  // namespace topksoftmax::bench
