// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <ostream>

#include "bounds/balls.hpp"
#include "bounds/panorama.hpp"
#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// Prefixes that every bound by prefixes is measured at.
constexpr std::array<const char*, 3> kPrefixes = {"16", "32", "64"};

/// Rows of a ball in the mean.
constexpr std::array<std::size_t, 2> kBallRows = {16, 100};

/// Levels that Panorama's rows are met in.
constexpr std::array<const char*, 2> kLevels = {"8", "16"};

/// Certified in other coordinates than its own, and in these without boxes and with them.
struct Variant {
  const char* label;
  const char* coordinates;
  const char* width;
  const char* boxes;
  const char* int4_width;
};
constexpr std::array<Variant, 6> kVariants = {{
    {"W's own SVD", "rows", "0", "never", "0"},
    // Behind the prefix, as FEXIPRO has them.
    {"W's own SVD, all coordinates", "rows", "16384", "never", "0"},
    {"contexts' eigenvectors", "contexts", "0", "never", "0"},
    {"balanced", "balanced", "0", "never", "0"},
    {"balanced, 96 in int4 behind it", "balanced", "0", "never", "96"},
    {"balanced", "balanced", "0", "always", "0"},
}};

/// What a row of the table is of.
struct Bounds {
  std::string label;
  std::string boxes;  ///< whether Certified has them, as its option says it

  std::string str() const { return label + ", boxes: " + boxes; }
};

/// Throws Error unless the answers are those of the fused softmax, bit for bit.
void check_answers(const Contestant& contestant, const Bounds& bounds, const RowMajorMatrix& contexts,
                   const std::vector<TopK>& expected, std::size_t k) {
  const std::vector<TopK> answers = answer_contexts(*contestant.system, contexts, {.k = k});
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ids == expected[i].ids && answers[i].logits == expected[i].logits) continue;
    throw Error("bounds: for test context " + std::to_string(i) + ", " + bounds.str() +
                " gives another answer than the fused softmax");
  }
}

}  // namespace

void run_bounds_ablation(const AblationRequest& request, std::ostream& out) {
  const Measurer measurer(request.head, request.measure, request.progress);
  const auto balls = std::make_shared<const BackendDescription>(ball_bounds());
  std::vector<Bounds> entered;
  std::vector<Contestant> contestants;
  const auto enter = [&](std::string label, std::string boxes, const Choice& choice) {
    entered.push_back({std::move(label), std::move(boxes)});
    contestants.push_back(measurer.build(choice));
  };
  for (const std::size_t rows : kBallRows) {
    const std::size_t clusters = std::max<std::size_t>(request.head.layer.vocab() / rows, 1);
    enter("balls, " + std::to_string(clusters), "-", {balls, {{"clusters", std::to_string(clusters)}}});
  }
  const auto panorama = std::make_shared<const BackendDescription>(panorama_bounds());
  for (const char* levels : kLevels) {
    enter(std::string("panorama, ") + levels + " levels", "-", {panorama, {{"levels", levels}}});
  }
  for (const char* prefix : kPrefixes) {
    for (const Variant& variant : kVariants) {
      enter(std::string(variant.label) + ", prefix " + prefix, variant.boxes,
            request.choice("certified", {{"coordinates", variant.coordinates},
                                         {"prefix", prefix},
                                         {"int4_width", variant.int4_width},
                                         {"width", variant.width},
                                         {"boxes", variant.boxes}}));
    }
  }
  enter("certified, its own threshold", "automatic", request.choice("certified", {{"boxes", "automatic"}}));
  enter("certified, L2S's threshold", "automatic", request.choice("certify:l2s", {}));

  request.progress.show("checking the answers");
  const std::size_t k = request.measure.largest_k();
  const RowMajorMatrix contexts = request.head.test.topRows(static_cast<Eigen::Index>(measurer.queries()));
  const std::vector<TopK> expected = answer_contexts(*measurer.build(request.choice("fused", {})).system,
                                                     contexts, {.k = k}, measurer.options().batch);
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    check_answers(contestants[i], entered[i], contexts, expected, k);
  }

  const Measurement measurement = measurer.measure(contestants);
  Table table({"k = " + std::to_string(k), "boxes", "survivors", "rows bounded", "KB/query", "µs/query",
               "speedup", "fell back %", "build s"});
  for (std::size_t i = 0; i < measurement.rows.size(); ++i) {
    const Row& row = measurement.rows[i];
    table.add({entered[i].label, entered[i].boxes, three_digits(row.precision.candidates_mean),
               three_digits(row.precision.screened_mean),
               three_digits(row.precision.bytes_read_mean / 1000.0),
               three_digits(row.timing.seconds_per_item * 1e6), three_digits(row.speedup),
               fixed(100.0 * row.precision.fell_back_rate, 1), fixed(row.build_seconds, 1)});
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
