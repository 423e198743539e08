// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

#include "topksoftmax/c/topksoftmax.h"

namespace topksoftmax::c {

/// Thrown through a build where the caller's progress callback has asked to stop.
struct Stopped {};

/// Thrown where the caller's executor has not done what it must.
class ExecutorFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The status of the exception that is being handled, with its message in `error` unless that is null.
topk_status report_exception(topk_error* error) noexcept;

/// Calls what may throw; nothing leaves it but a status.
template <class Body>
topk_status guarded(topk_error* error, const Body& body) noexcept {
  try {
    body();
    return TOPK_OK;
  } catch (...) {
    return report_exception(error);
  }
}

/// Throws std::invalid_argument, naming it, where a pointer is null.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " is a null pointer");
  return *pointer;
}

/// Throws std::invalid_argument unless pointer and count both say that there is something, or neither does.
inline void require_values(const void* pointer, std::size_t count, const char* name) {
  if ((pointer != nullptr) == (count != 0)) return;
  throw std::invalid_argument(std::string(name) + (count != 0 ? " is a null pointer" : " is given") +
                              ", but its count is " + std::to_string(count));
}

/// Throws std::invalid_argument for a struct of the caller's that this version cannot know.
template <class Struct>
void check_size(const Struct& given, const char* name) {
  if (given.struct_size >= sizeof(given.struct_size) && given.struct_size <= sizeof(Struct)) return;
  throw std::invalid_argument(std::string(name) + ": struct_size is " + std::to_string(given.struct_size) +
                              "; this version of the library knows " + std::to_string(sizeof(Struct)) +
                              " bytes: begin with the struct's INIT macro");
}

/// A struct of the caller's; members that it is too short for, and all of a null pointer, have their
/// defaults.
template <class Struct>
Struct known(const Struct* given, const Struct& defaults, const char* name) {
  Struct all = defaults;
  if (given == nullptr) return all;
  check_size(*given, name);
  std::memcpy(&all, given, given->struct_size);
  return all;
}

/// Writes the members that the caller's struct has room for.
template <class Struct>
void store(Struct all, Struct& out) {
  all.struct_size = out.struct_size;
  std::memcpy(&out, &all, out.struct_size);
}

}  // namespace topksoftmax::c
