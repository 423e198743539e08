// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What went wrong on one rank, as the others are told of it. Plain bytes; making one allocates nothing.
struct Failure {
  enum class Kind : std::uint32_t { none, invalid_argument, out_of_memory, other };

  Kind kind = Kind::none;
  std::uint32_t length = 0;
  char sentence[504] = {};

  /// Of what is being handled.
  static Failure current() {
    Failure failure;
    try {
      throw;
    } catch (const std::bad_alloc&) {
      failure.kind = Kind::out_of_memory;
    } catch (const std::invalid_argument& error) {
      failure.tell(Kind::invalid_argument, error.what());
    } catch (const std::exception& error) {
      failure.tell(Kind::other, error.what());
    } catch (...) {
      failure.tell(Kind::other, "an exception of unknown type");
    }
    return failure;
  }

  /// Throws what the rank threw, on another one: a std::invalid_argument, std::bad_alloc or Error.
  [[noreturn]] void raise(int rank) const {
    if (kind == Kind::out_of_memory) throw std::bad_alloc();
    const std::string told = "rank " + std::to_string(rank) + ": " + std::string(sentence, length);
    if (kind == Kind::invalid_argument) throw std::invalid_argument(told);
    throw Error(told);
  }

 private:
  void tell(Kind what, std::string_view text) {
    kind = what;
    length = static_cast<std::uint32_t>(std::min(text.size(), sizeof(sentence)));
    std::memcpy(sentence, text.data(), length);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
