// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <string>

#include "linear.hpp"
#include "sized_vector.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// What an LSTM layer remembers of each stream: one row a stream.
struct LstmState {
  RowMajorMatrix hidden;  ///< [streams×d]
  RowMajorMatrix cell;    ///< [streams×d]

  /// Streams that have read nothing yet.
  static LstmState zero(Eigen::Index streams, Eigen::Index dim) {
    return {RowMajorMatrix::Zero(streams, dim), RowMajorMatrix::Zero(streams, dim)};
  }
};

/// A layer of an LSTM in PyTorch's layout: the gates i, f, g, o one below the other in
/// PREFIX.weight_ih_SUFFIX [4d×inputs], weight_hh [4d×d] and two biases [4d].
class LstmCell {
  static auto sigmoid(const auto& x) { return (1.0F + (-x.array()).exp()).inverse(); }

 public:
  LstmCell() = default;
  /// Throws Error, which names the tensor, where one is missing or has another shape or a value that is not
  /// finite.
  LstmCell(const SafetensorsFile& file, const std::string& prefix, const std::string& suffix,
           std::size_t inputs, std::size_t dim)
      : input_(file, prefix + ".weight_ih_" + suffix,
               sized_vector(file, prefix + ".bias_ih_" + suffix, 4 * dim) +
                   sized_vector(file, prefix + ".bias_hh_" + suffix, 4 * dim),
               {4 * dim, inputs}),
        recurrent_(file, prefix + ".weight_hh_" + suffix, {}, {4 * dim, dim}) {}

  Eigen::Index dim() const { return recurrent_.cols(); }

  /// What inputs X [n×inputs] bring to the gates, which needs no state: [n×4d].
  void read(const ConstRows& X, RowMajorMatrix& gates) const { input_.apply(X, gates); }

  /// One step of every stream, given what its input brings to the gates [streams×4d].
  void step(const ConstRows& input_gates, LstmState& state) const {
    const Eigen::Index d = dim();
    RowMajorMatrix gates;
    recurrent_.apply(state.hidden, gates);
    gates += input_gates;
    const auto i = sigmoid(gates.leftCols(d));
    const auto f = sigmoid(gates.middleCols(d, d));
    const auto g = gates.middleCols(2 * d, d).array().tanh();
    const auto o = sigmoid(gates.rightCols(d));
    state.cell = f * state.cell.array() + i * g;
    state.hidden = o * state.cell.array().tanh();
  }

 private:
  Linear input_;
  Linear recurrent_;
};

}  // namespace topksoftmax::examples
