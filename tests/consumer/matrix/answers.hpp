// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "world.hpp"

/// What a backend, or a decoder, answers to one question. Types of no form of the library, so that all forms
/// and programs can be compared.
struct Answer {
  std::string of;  ///< the backend's or the decoder's name
  std::size_t question = 0;
  std::vector<std::int32_t> ids = {};
  std::vector<float> logits = {};
  double low = 0.0;  ///< log Z lies between these; a decoder's log-probability is both
  double high = 0.0;
  bool exact_log_z = false;  ///< both are the sum over every token
  bool holds_log_z = false;  ///< the sum over every token lies between them
  bool exact_top_k = false;  ///< the backend says that ids are the exact top-k
};

using Answers = std::vector<Answer>;

/// The form of the library that a file is compiled for, FORM, has functions of its own in a namespace of that
/// name: every backend's answers, then the decoders'.
namespace compiled_form {
Answers answers(const World& world);
Answers decoded(const World& world);
}  // namespace compiled_form
namespace header_only_form {
Answers answers(const World& world);
Answers decoded(const World& world);
}  // namespace header_only_form

/// How far apart the log Z of two programs may lie. Of intervals that is the gap between them: the middle of
/// one that Certified proves depends on how many boxes its coordinates, which a decomposition gave, left
/// shut.
struct Tolerance {
  double exact_log_z;
  double other;
};

/// Throws std::runtime_error for the first difference: in a token, in a bit of a logit, beyond the tolerance
/// in log Z.
void expect_equal(const Answers& expected, const Answers& found, const Tolerance& tolerance);

/// Throws std::runtime_error where the ids of an exact backend, or log Z where it is said to be known, are
/// not those of plain float64 sums, or where no backend is exact.
void expect_exact(const Answers& answers, const World& world);

/// As text, bit for bit.
void write(std::ostream& out, const Answers& answers);
Answers read(std::istream& in);
