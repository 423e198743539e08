// SPDX-License-Identifier: Apache-2.0
#include "answers.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <istream>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <string>

namespace {

/// Of log Z in float32 kernels.
constexpr double kRounding = 1e-5;

[[noreturn]] void fail(const Answer& answer, const std::string& what) {
  throw std::runtime_error(answer.of + ", question " + std::to_string(answer.question) + ": " + what);
}

bool bits_equal(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// How far two intervals lie apart; 0 where they meet, NaN for what is not an interval.
double gap(double low, double high, const Answer& answer) {
  const double apart = std::max(low - answer.high, answer.low - high);
  return apart < 0.0 ? 0.0 : apart;
}

}  // namespace

void expect_equal(const Answers& expected, const Answers& found, const Tolerance& tolerance) {
  if (expected.size() != found.size()) {
    throw std::runtime_error(std::to_string(found.size()) + " answers, where there should be " +
                             std::to_string(expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Answer& a = expected[i];
    const Answer& b = found[i];
    if (a.of != b.of || a.question != b.question) fail(b, "is out of order");
    if (a.ids != b.ids) fail(b, "other tokens");
    if (!std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(), bits_equal))
      fail(b, "other logits");
    const double allowed = a.exact_log_z && b.exact_log_z ? tolerance.exact_log_z : tolerance.other;
    if (a.exact_log_z != b.exact_log_z || !(gap(a.low, a.high, b) <= allowed))
      fail(b, "log Z differs by " + std::to_string(gap(a.low, a.high, b)));
  }
}

void expect_exact(const Answers& answers, const World& world) {
  bool any = false;
  for (const Answer& answer : answers) {
    const Truth& truth = world.truths[answer.question % World::kAsked];
    if (answer.holds_log_z && !(gap(truth.log_z, truth.log_z, answer) <= kRounding))
      fail(answer, "not log Z");
    if (!answer.exact_top_k) continue;
    any = true;
    if (answer.ids != truth.best) fail(answer, "not the exact tokens");
  }
  if (!any) throw std::runtime_error("no backend is exact");
}

void write(std::ostream& out, const Answers& answers) {
  for (const Answer& answer : answers) {
    out << answer.of << '\n' << answer.question << ' ' << answer.ids.size() << ' ' << answer.logits.size();
    for (const std::int32_t id : answer.ids) out << ' ' << id;
    for (const float logit : answer.logits) out << ' ' << std::bit_cast<std::uint32_t>(logit);
    for (const double one : {answer.low, answer.high}) out << ' ' << std::bit_cast<std::uint64_t>(one);
    out << ' ' << answer.exact_log_z << '\n';
  }
}

Answers read(std::istream& in) {
  Answers answers;
  for (Answer answer; std::getline(in, answer.of); answers.push_back(answer)) {
    std::size_t ids = 0;
    std::size_t logits = 0;
    in >> answer.question >> ids >> logits;
    answer.ids.resize(ids);
    answer.logits.resize(logits);
    for (std::int32_t& id : answer.ids) in >> id;
    for (float& logit : answer.logits) {
      std::uint32_t bits = 0;
      in >> bits;
      logit = std::bit_cast<float>(bits);
    }
    for (double* one : {&answer.low, &answer.high}) {
      std::uint64_t bits = 0;
      in >> bits;
      *one = std::bit_cast<double>(bits);
    }
    in >> answer.exact_log_z;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return answers;
}
