// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <string>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Floats in memory that can be viewed by pointer: not an expression that must be computed, and, as far as
/// the type tells, those of a row or of a vector next to each other.
template <class Dense>
concept InMemory = std::is_same_v<typename Dense::Scalar, float> &&
                       (Dense::Flags& Eigen::DirectAccessBit) != 0 &&
                   (Dense::InnerStrideAtCompileTime == 1 ||
                    Dense::InnerStrideAtCompileTime == Eigen::Dynamic);

/// A row-major matrix of them; the rows may be apart from each other.
template <class Dense>
concept RowsInMemory = InMemory<Dense> && bool{Dense::IsRowMajor};

/// A vector of them.
template <class Dense>
concept VectorInMemory = InMemory<Dense> && bool{Dense::IsVectorAtCompileTime};

/// What a function takes as T&& is a matrix or vector with values of its own, gone when the call is over.
template <class T>
concept TemporaryValues = !std::is_lvalue_reference_v<T> && requires(T & values) {
  []<class Dense>(const Eigen::PlainObjectBase<Dense>&) {}(values);
};

/// Throws Error, which begins with `name`, where only run time tells that the values of a row or of a vector
/// are apart: a column of a row-major matrix, say.
template <InMemory Dense>
void check_contiguous(const Dense& values, const char* name) {
  if (values.innerStride() == 1 || values.innerSize() <= 1) return;
  throw Error(std::string(name) + " has values " + std::to_string(values.innerStride()) +
              " floats apart; they must lie next to each other: take a copy");
}

}  // namespace TOPKSOFTMAX_NAMESPACE
