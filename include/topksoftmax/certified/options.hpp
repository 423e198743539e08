// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// In which coordinates contexts and rows are bounded. Every choice is exact and reads as much for a prefix;
/// they differ in how many rows a prefix leaves. Q and R are those of CertifiedScreener.
enum class BoundCoordinates : std::uint8_t {
  /// Those in which E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal: both tails are short. Cost to build: one
  /// eigenvectors' problem in d dimensions, one in `width`. Where there are few rows for each dimension, the
  /// layer's own instead if these make less work: they take no transform.
  balanced,
  /// The leading eigenvectors of E[hhᵀ], unscaled (R = I): the context's tail is as short as it can be, the
  /// rows' are not. One eigenvectors' problem in d dimensions. Needs contexts.
  contexts,
  /// W's singular vectors, its singular values on the context's side (R = Σ): FEXIPRO's transformation
  /// (SIGMOD'17, §3). Knows nothing of the contexts. One eigenvectors' problem in d dimensions, one in
  /// `width`.
  rows,
};

/// Whether sixteen similar rows at a time are first bounded as one, by a box around their coordinates. Where
/// contexts differ in few directions most boxes stay closed, and their rows unread; where they differ in
/// many, nearly all are opened and only cost.
enum class BoundBoxes : std::uint8_t {
  automatic,  ///< where that makes less work for the contexts
  never,
  always,
};

/// How option files and the tool name them.
inline constexpr OptionChoices<BoundCoordinates, 3> bound_coordinates_choices = {
    .type = "BoundCoordinates",
    .all = {{{"balanced", BoundCoordinates::balanced},
             {"contexts", BoundCoordinates::contexts},
             {"rows", BoundCoordinates::rows}}}};

/// How option files and the tool name them.
inline constexpr OptionChoices<BoundBoxes, 3> bound_boxes_choices = {
    .type = "BoundBoxes",
    .all = {{{"automatic", BoundBoxes::automatic},
             {"never", BoundBoxes::never},
             {"always", BoundBoxes::always}}}};

/// Options of Certified. What builds throws Error for values out of their ranges.
struct CertifiedOptions {
  /// Coordinates of every row that the first scan reads, as int8: a multiple of 4, at most `width`; 0 chooses
  /// by counting, on contexts, the work that each choice would make, and int4_width with it. Where there is
  /// at most one context, all coordinates are read: in int4 but for the first 32 and what is no multiple of
  /// 32, unless `width` or coordinates of the rows' own leave them out.
  std::size_t prefix = 0;
  /// Coordinates behind these that it reads as int4: a multiple of 32, all together at most `width`. Only
  /// with a prefix.
  std::size_t int4_width = 0;
  /// Coordinates behind these that it reads as codes of two bits: likewise. Only with a failure_probability.
  std::size_t int2_width = 0;
  /// Coordinates that rows have in all, 4 to 16,384; what a row and a context have beyond them counts by its
  /// length alone. 0: as many as lie in one cache line behind the prefix, or more where the contexts, or W
  /// where a prefix is given but no contexts, have so many directions that fewer would leave many rows to
  /// score.
  std::size_t width = 0;
  /// Contexts that are learned from, evenly spaced ones of those given: at least 1. Up to 96 of these, at
  /// most half, choose what is read, and the coordinates are learned from the others.
  std::size_t context_sample = 20000;
  /// The k that the prefix is chosen, and log Z estimated, for: at least 1.
  std::size_t expected_k = 5;
  /// `rows` and `contexts` are there to be compared with.
  BoundCoordinates coordinates = BoundCoordinates::balanced;
  /// Whether blocks of similar rows are bounded before their rows are.
  BoundBoxes boxes = BoundBoxes::automatic;
  /// Coordinates of a box, where there are any: the leading ones of the prefix, a multiple of 4 and no more
  /// than that has; 0 chooses.
  std::size_t box_width = 0;
  /// δ, up to 0.01: what the probability that an answer is wrong may be; 0: it is proven. Where codes are
  /// read, they are then dithered (detail::Dither), and what rounding takes of the k best rows is bounded by
  /// what chance makes of it, about a fifth of what it could be. What is random is the dither, drawn once, at
  /// the build; the promise is for each context that does not depend on it, over all dithers. Answers are not
  /// TopK::certified then, but have a TopK::confidence of 1 − δ.
  double failure_probability = 0.0;
  /// The largest δ.
  static constexpr double most_failure_probability = 0.01;
  /// Of the dither.
  std::uint64_t dither_seed = 1;
  /// Contexts, evenly spaced ones, that the estimate of log Z within its interval is learned from; fewer,
  /// but no fewer than 1,000, where their logits would take more than 2³⁷ multiply-adds. 0: it is not
  /// learned.
  std::size_t outside_sample = 20000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Coordinates that are read as codes.
  std::size_t code_width() const { return int4_width + int2_width; }

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("prefix", options.prefix, "coordinates that the first scan reads; 0 chooses on the contexts");
    visit("int4_width", options.int4_width, "coordinates behind the prefix that it reads as int4");
    visit("int2_width", options.int2_width, "coordinates behind these that it reads as codes of two bits");
    visit("width", options.width, "coordinates in all", from_to(4, kernels::kMaxWidth).or_0());
    visit("context_sample", options.context_sample, "contexts that the coordinates are learned from",
          at_least(1));
    visit("expected_k", options.expected_k, "the k that the prefix is chosen for", at_least(1));
    visit("coordinates", options.coordinates, "what bounds are made in", bound_coordinates_choices);
    visit("boxes", options.boxes, "whether blocks of similar rows are bounded first", bound_boxes_choices);
    visit("box_width", options.box_width, "coordinates that these are bounded in; 0 chooses");
    visit("failure_probability", options.failure_probability,
          "δ, the probability with which an answer may be wrong; 0: it is proven",
          between(0.0, most_failure_probability));
    visit("dither_seed", options.dither_seed, "of the dither that this is a probability over");
    visit("outside_sample", options.outside_sample,
          "contexts that the estimate of log Z is learned from; 0: it is not");
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The options that every index file records: the numbers that the bounds are made by, but those of codes and
/// boxes, and whether there are boxes.
template <class Options, class Visit>
void visit_recorded_options(Options& options, const Visit& visit) {
  CertifiedOptions::visit(options, [&]<class T>(std::string_view name, T& value, const auto&... /*limits*/) {
    if constexpr (!std::is_enum_v<T>) {
      constexpr std::string_view others[] = {"int4_width",          "int2_width",  "box_width",
                                             "failure_probability", "dither_seed", "outside_sample"};
      if (std::find(std::begin(others), std::end(others), name) == std::end(others)) visit(name, value);
    }
  });
  unsigned boxes = options.boxes == BoundBoxes::always ? 1 : 0;
  visit("boxes", boxes);
  if constexpr (!std::is_const_v<Options>) {
    options.boxes = boxes != 0 ? BoundBoxes::always : BoundBoxes::never;
  }
}

/// Throws Error unless so many coordinates can be read as codes, of at most `room`.
inline void check_code_width(std::string_view name, std::size_t width, std::size_t room,
                             const CertifiedOptions& options) {
  if (width == 0) return;
  if (options.prefix == 0) {
    throw Error("certified: " + std::string(name) + " is " + std::to_string(width) +
                ", which wants a prefix");
  }
  if (width % kernels::CodeContext::kSegment != 0 || width > room) {
    throw bad_value("certified: " + std::string(name), width,
                    "a multiple of 32 and, with what is read before, at most width: ", room);
  }
}

/// Throws Error for what nothing can be built with.
inline void check_certified_options(const CertifiedOptions& options) {
  check_options("certified", options);
  const std::size_t longest = options.width == 0 ? kernels::kMaxWidth : options.width;
  if (options.prefix % 4 != 0 || options.prefix > longest) {
    throw bad_value("certified: prefix", options.prefix, "a multiple of 4 and at most ", longest);
  }
  if (options.box_width % 4 != 0 || options.box_width > (options.prefix == 0 ? longest : options.prefix)) {
    throw bad_value("certified: box_width", options.box_width, "a multiple of 4 and at most the prefix: ",
                    options.prefix == 0 ? longest : options.prefix);
  }
  check_code_width("int4_width", options.int4_width, longest - options.prefix, options);
  check_code_width("int2_width", options.int2_width, longest - options.prefix - options.int4_width, options);
  if (options.int2_width > 0 && options.failure_probability == 0.0) {
    throw Error("certified: int2_width is " + std::to_string(options.int2_width) +
                ", which wants a failure_probability: proven, codes of two bits rule nothing out");
  }
}

/// The same once nothing is left open. Narrow layers have fewer coordinates than may be asked for.
inline void check_chosen_options(const CertifiedOptions& options) {
  const double failure = options.failure_probability;
  if (!(failure >= 0.0 && failure <= CertifiedOptions::most_failure_probability)) {
    throw Error("certified: failure_probability is " + std::to_string(failure) +
                "; it must be between 0 and " + std::to_string(CertifiedOptions::most_failure_probability));
  }
  if (options.width >= 1 && options.width <= kernels::kMaxWidth && options.prefix % 4 == 0 &&
      options.prefix <= options.width && options.box_width % 4 == 0 && options.box_width <= options.prefix &&
      options.int4_width % kernels::CodeContext::kSegment == 0 &&
      options.int2_width % kernels::CodeContext::kSegment == 0 &&
      options.int4_width <= options.width - options.prefix &&
      options.int2_width <= options.width - options.prefix - options.int4_width) {
    return;
  }
  throw Error("certified: prefix is " + std::to_string(options.prefix) + ", box_width " +
              std::to_string(options.box_width) + ", int4_width " + std::to_string(options.int4_width) +
              ", int2_width " + std::to_string(options.int2_width) + " and width " +
              std::to_string(options.width));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
