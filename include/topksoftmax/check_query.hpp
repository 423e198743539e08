// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// What is asked of a backend is looked at before it is answered: all throw std::invalid_argument.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws unless every value of a context [dim] is finite.
inline void check_context(const float* h, std::size_t dim) {
  const std::size_t j = first_not_finite(h, dim);
  if (j == dim) return;
  throw std::invalid_argument("query: h[" + std::to_string(j) + "] is " +
                              value_text(static_cast<double>(h[j])) + "; every value must be finite");
}

/// Throws unless biases are finite and of tokens, in ascending order.
inline void check_biases(std::span<const TokenBias> biases, std::size_t vocab) {
  TokenId previous = -1;
  for (const TokenBias& bias : biases) {
    if (bias.id < 0 || static_cast<std::size_t>(bias.id) >= vocab) {
      throw std::invalid_argument("query: logit_bias names token " + std::to_string(bias.id) +
                                  "; ids must be at least 0 and below V = " + std::to_string(vocab));
    }
    if (bias.id <= previous) {
      throw std::invalid_argument("query: logit_bias names token " + std::to_string(bias.id) + " after " +
                                  std::to_string(previous) + "; ids must be strictly ascending");
    }
    if (!std::isfinite(bias.bias)) {
      throw std::invalid_argument("query: the logit_bias of token " + std::to_string(bias.id) +
                                  " is not finite; forbid a token by the mask");
    }
    previous = bias.id;
  }
}

/// Throws unless every id is one of a token and there is room for a number for each.
inline void check_tokens(const char* asked, std::span<const TokenId> ids, std::size_t room,
                         std::size_t vocab) {
  if (ids.size() != room) {
    throw std::invalid_argument(std::string(asked) + ": there are " + std::to_string(ids.size()) +
                                " tokens and room for " + std::to_string(room) +
                                " values; they must be as many");
  }
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < vocab) continue;
    throw std::invalid_argument(std::string(asked) + ": there is no token " + std::to_string(id) +
                                " among V = " + std::to_string(vocab));
  }
}

/// Throws unless k and the tolerance of log Z can be meant, whether they count or not.
inline void check_limits(const QueryOptions& options) {
  if (options.k == 0) throw std::invalid_argument("query: k is 0; at least 1 token must be asked for");
  if (!(options.log_z_tolerance >= 0.0)) {
    throw std::invalid_argument("query: log_z_tolerance is " + value_text(options.log_z_tolerance) +
                                "; it must be at least 0");
  }
}

/// Throws unless there is a workspace.
inline void check_workspaces(const char* asked, std::span<const Workspace> workspaces) {
  if (!workspaces.empty()) return;
  throw std::invalid_argument(std::string(asked) + ": there is no workspace; one a thread is needed");
}

/// Throws unless there are as many of something as contexts.
inline void check_as_many(const char* asked, std::size_t contexts, std::size_t count, const char* what) {
  if (contexts == count) return;
  throw std::invalid_argument(std::string(asked) + ": there are " + std::to_string(contexts) +
                              " contexts and " + std::to_string(count) + ' ' + what +
                              "; they must be as many");
}

/// Calls what is to be done for context i of several, which the error names.
template <class Body>
void naming_context(const char* asked, std::size_t i, const Body& body) {
  try {
    body();
  } catch (const std::invalid_argument& problem) {
    throw std::invalid_argument(std::string(asked) + ": context " + std::to_string(i) + ": " +
                                problem.what());
  }
}

/// Throws unless a context has as many values as the layer's rows. Looks at none of them.
inline void check_dimension(std::size_t dim, const SoftmaxLayer& layer) {
  if (dim == layer.dim()) return;
  throw std::invalid_argument("query: h has " + std::to_string(dim) + " values; " +
                              other_dimension(dim, layer));
}

/// The error for an accuracy that log Z cannot be found to.
inline std::invalid_argument unusable_error(const char* asked, double error, const char* limit) {
  return std::invalid_argument(std::string(asked) + ": error is " + value_text(error) + "; it must be " +
                               limit);
}

/// Their reciprocals, and a logit's distance times these, must stay within the floats, and above 0.
inline constexpr double kLeastTemperature = 1e-30;
inline constexpr double kMostTemperature = 1e30;

/// Throws unless logits can be divided by it.
inline void check_temperature(const char* asked, double temperature) {
  if (!(temperature >= kLeastTemperature && temperature <= kMostTemperature)) {
    throw std::invalid_argument(std::string(asked) + ": temperature is " + value_text(temperature) +
                                "; it must be from 1e-30 to 1e30");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
