// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/communicator.hpp"
#include "topksoftmax/distributed/failure.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Does a step on every rank, which may throw: if it does on any, it does on all. Collective.
template <class Step>
void agree(Communicator& ranks, const Step& step) {
  Failure failure;
  std::exception_ptr own;
  try {
    step();
  } catch (...) {
    own = std::current_exception();
    failure = Failure::current();
  }
  const Communicator::Told told = ranks.tell(failure);
  if (own) std::rethrow_exception(own);
  if (told.rank != ranks.size()) told.failure.raise(told.rank);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
