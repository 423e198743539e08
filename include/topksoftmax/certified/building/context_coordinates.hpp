// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <vector>

#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts in the coordinates that a transform gives them.
struct ContextCoordinates {
  ContextCoordinates(const RowMajorMatrix& contexts, const ContextTransform& transform,
                     const Executor& executor);

  Eigen::MatrixXd inside;   ///< h' [n×width]
  Eigen::VectorXd outside;  ///< ‖h⊥‖ [n]
  Eigen::VectorXd errors;   ///< E [n]
};

inline ContextCoordinates::ContextCoordinates(const RowMajorMatrix& contexts,
                                              const ContextTransform& transform, const Executor& executor)
    : inside(times(contexts.cast<double>(), basis_of(transform))),
      outside(contexts.rows()),
      errors(contexts.rows()) {
  constexpr std::size_t kTransformedAtOnce = 16;
  for_each_part(
      executor, static_cast<std::size_t>(contexts.rows()), kTransformedAtOnce,
      [&](std::size_t first, std::size_t count) {
        std::vector<float> projected(transform.projected_room());
        std::vector<float> transformed(transform.room());
        const Workspace workspace;  // nobody else's threads
        for (std::size_t i = first; i < first + count; ++i) {
          const auto at = static_cast<Eigen::Index>(i);
          const float* const h = contexts.row(at).data();
          const auto lengths = transform.apply({h, projected.data(), transformed.data()}, workspace);
          outside[at] = transform.outside(lengths);
          errors[at] = transform.error(lengths);
        }
      });
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
