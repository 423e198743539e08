// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// An Error about JSON in a file: "PATH: SUBJECT not valid JSON at byte POSITION: WHAT".
inline Error json_error(const std::filesystem::path& path, std::string_view subject, std::size_t position,
                        std::string_view what) {
  return Error(path.string() + ": " + std::string(subject) + " not valid JSON at byte " +
               std::to_string(position) + ": " + std::string(what));
}

/// The JSON parser takes a zero byte for the end of its input, and would not see what follows.
inline void check_no_zero_byte(std::string_view text, const std::filesystem::path& path,
                               std::string_view subject) {
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) throw json_error(path, subject, zero, "a zero byte");
}

}  // namespace TOPKSOFTMAX_NAMESPACE
