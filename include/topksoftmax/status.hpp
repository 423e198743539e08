// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

// Calls without exceptions, for engines whose calls must not throw.
namespace TOPKSOFTMAX_NAMESPACE {

/// The outcome of a call.
enum class StatusCode : std::uint8_t {
  ok,
  invalid_argument,  ///< std::invalid_argument: a query that cannot be asked
  error,             ///< Error: what cannot be built, trained, loaded or saved
  out_of_memory,     ///< std::bad_alloc, std::length_error
  other,             ///< anything else, an executor's or a callback's own
};

/// The code, and the exception's message.
struct Status {
  /// The outcome of the call.
  StatusCode code = StatusCode::ok;
  /// The exception's message; empty where it went well.
  std::string message = {};

  /// Whether it went well.
  explicit operator bool() const noexcept { return code == StatusCode::ok; }
};

namespace detail {

/// The message, or none where memory runs out for it.
inline Status status_of(StatusCode code, const char* message) noexcept {
  try {
    return {code, message};
  } catch (...) {
    return {code, {}};
  }
}

}  // namespace detail

/// Calls what may throw: attempt([&] { head = L2S::train(layer, contexts); }). Throws nothing.
template <class Call>
Status attempt(const Call& call) noexcept {
  try {
    call();
    return {};
  } catch (const std::invalid_argument& problem) {
    return detail::status_of(StatusCode::invalid_argument, problem.what());
  } catch (const Error& problem) {
    return detail::status_of(StatusCode::error, problem.what());
  } catch (const std::bad_alloc&) {
    return detail::status_of(StatusCode::out_of_memory, "out of memory");
  } catch (const std::length_error&) {
    return detail::status_of(StatusCode::out_of_memory, "out of memory");
  } catch (const std::exception& problem) {
    return detail::status_of(StatusCode::other, problem.what());
  } catch (...) {
    return detail::status_of(StatusCode::other, "an exception of another kind");
  }
}

/// TopKSoftmax::query() that throws nothing; `answer` is whole where it is ok, and otherwise as it was.
inline Status try_query(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& options,
                        Workspace& workspace, TopK& answer) noexcept {
  return attempt([&] { head.query(h, options, workspace, answer); });
}

/// TopKSoftmax::query_batch() into flat memory that throws nothing; as it says there, rows may have been
/// written where memory ran out.
inline Status try_query_batch(const TopKSoftmax& head, const float* H, std::size_t batch, std::size_t dim,
                              std::size_t stride, const QueryOptions& options,
                              std::span<Workspace> workspaces, const FlatAnswers& answers,
                              const Executor& executor = default_executor()) noexcept {
  return attempt([&] { head.query_batch(H, batch, dim, stride, options, workspaces, answers, executor); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
