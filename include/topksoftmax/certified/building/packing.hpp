// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/building/box_maker.hpp"
#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/certified/building/tail_writer.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/coder.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rounds the rows of a layer to prefixes and tails, in the order of the index, and measures what that leaves
/// out.
class RowPacker {
 public:
  RowPacker(const SoftmaxLayer& layer, const RowProjector& projector, const RowOrder& order,
            const CertifiedOptions& options)
      : projector_(projector),
        order_(order),
        prefix_(options.prefix),
        box_width_(options.boxes == BoundBoxes::always ? options.box_width : 0),
        codes_width_(options.int4_width + options.int2_width),
        biases_(layer.biases()),
        // A layer narrower than the prefix is filled up with zeros.
        tail_width_(options.width - prefix_),
        prefixes_(layer.vocab(), prefix_, options.int4_width, options.int2_width),
        tails_(layer.vocab(), tail_width_) {
    by_prefix_.rows.resize(layer.vocab());
    by_tails_.rows.resize(layer.vocab());
    by_codes_.rows.resize(layer.vocab());
    if (box_width_ > 0) by_boxes_.rows.resize(layer.vocab());
    const bool random = codes_width_ > 0 && options.failure_probability > 0.0;
    dither_ = random ? Dither(codes_width_, options.failure_probability, options.dither_seed)
                     : Dither(codes_width_);
    reach_ = dither_.reach(options.expected_k);
  }

  /// Stores the rows, and their radii with weights that suit contexts like these.
  void pack(const ContextCoordinates& contexts, const StepProgress& report, const Executor& executor,
            CertifiedIndex& index) && {
    const std::size_t vocab = by_prefix_.rows.size();
    std::vector<double> longest((vocab + kRowsAtOnce - 1) / kRowsAtOnce);
    for_each_reported_part(executor, vocab, kRowsAtOnce, report, [&](std::size_t first, std::size_t count) {
      std::vector<TokenId> tokens(count);
      for (std::size_t i = 0; i < count; ++i) tokens[i] = order_.token(first + i);
      const RowCoordinates rows = projector_.at(tokens);
      longest[first / kRowsAtOnce] = rows.norms.maxCoeff();
      for (std::size_t i = 0; i < count; ++i) put(first + i, tokens[i], rows, static_cast<Eigen::Index>(i));
    });
    index.longest_row = *std::max_element(longest.begin(), longest.end());
    index.largest_bias = static_cast<double>(biases_.cwiseAbs().maxCoeff());
    share_contexts(contexts);
    index.prefix_weights = weigh(by_prefix_);
    index.tail_weights = weigh(by_tails_);
    if (codes_width_ > 0) index.code_weights = weigh_codes(by_codes_);
    for_each_part(executor, vocab, kRowsAtOnce, [&](std::size_t first, std::size_t count) {
      for (std::size_t place = first; place < first + count; ++place) {
        prefixes_.put_radius(place, row_radius(by_prefix_.rows[place], index.prefix_weights));
        if (codes_width_ > 0) {
          prefixes_.put_code_radius(place, row_radius(by_codes_.rows[place], index.code_weights));
        }
        if (tail_width_ == 0) continue;
        tails_.put_radius(place, row_radius(by_tails_.rows[place], index.tail_weights));
      }
    });
    index.prefixes = std::move(prefixes_).finish();
    if (box_width_ > 0) make_boxes(executor, index);
    index.tails = std::move(tails_).finish();
    index.dither = std::move(dither_);
  }

 private:
  static constexpr std::size_t kRowsAtOnce = 1024;
  /// What rounding to eight bits takes of a context.
  static constexpr double kTypicallyLost = 0.01;

  /// Stores a row, of a token, at a place.
  void put(std::size_t place, TokenId token, const RowCoordinates& rows, Eigen::Index i) {
    std::vector<double> values(std::max(projector_.width(), prefix_ + tail_width_), 0.0);
    Eigen::Map<Eigen::RowVectorXd>(values.data(), rows.inside.cols()) = rows.inside.row(i);
    std::vector<std::int8_t> q(std::max<std::size_t>(prefix_, 1));
    const std::span<const double> all(values);
    const double length = rows.inside.row(i).norm();
    const auto length_behind = [&values](std::size_t width) {
      return Eigen::Map<const Eigen::VectorXd>(values.data() + width,
                                               static_cast<Eigen::Index>(values.size() - width))
          .norm();
    };
    const double behind_box = length_behind(box_width_);
    const double behind_prefix = length_behind(prefix_ + codes_width_);
    const double behind_tail = length_behind(prefix_ + tail_width_);
    double rounded = 0.0;
    double stored = 0.0;
    const auto count = [&rounded, &stored](double value, double kept) {
      rounded += std::pow(value - kept, 2);
      stored += kept * kept;
    };
    const double scale = prefixes_.put(place, biases_[token], all.first(prefix_), q.data());
    for (std::size_t j = 0; j < prefix_; ++j) count(all[j], scale * q[j]);
    const double prefix_rounded = rounded;
    double box_rounded = 0.0;
    for (std::size_t j = 0; j < box_width_; ++j) box_rounded += std::pow(all[j] - scale * q[j], 2);
    CodeTerms of_codes{};
    if (tail_width_ > 0) {
      const std::span<double> tail = std::span(values).subspan(prefix_, tail_width_);
      if (codes_width_ > 0) of_codes = put_codes(place, tail.first(codes_width_));
      const TailWriter::Coordinates kept = tails_.put(place, tail);
      for (std::size_t j = 0; j < tail.size(); ++j) count(tail[j], kept.scale * kept.q[j]);
    }
    by_codes_.rows[place] = by_codes_.of_row(of_codes);
    const double code_length = of_codes[kCodeContext];
    const double errors = std::max({rows.norms[i], length, std::sqrt(stored)}) + code_length;
    if (box_width_ > 0) {
      by_boxes_.rows[place] =
          by_boxes_.of_row({behind_box, rows.outside[i], std::sqrt(box_rounded), errors, 0.0});
    }
    by_prefix_.rows[place] =
        by_prefix_.of_row({behind_prefix, rows.outside[i], std::sqrt(prefix_rounded), errors, 0.0});
    by_tails_.rows[place] =
        by_tails_.of_row({behind_tail, rows.outside[i], std::sqrt(rounded), errors, code_length});
  }

  /// Stores coordinates x as codes, and leaves what these round off: tails are of this.
  CodeTerms put_codes(std::size_t place, std::span<double> x) {
    const kernels::PrefixCodes& int4 = prefixes_.blocks().int4();
    const kernels::PrefixCodes& int2 = prefixes_.blocks().int2();
    CodeTerms terms{};
    const PutCodes of_int4 = put_codes(place, int4, 0, x.first(int4.width));
    const PutCodes of_int2 = put_codes(place, int2, int4.width, x.subspan(int4.width));
    terms[kInt4Rounded] = of_int4.rounded;
    terms[kInt2Rounded] = of_int2.rounded;
    terms[kCodeContext] = std::hypot(of_int4.length, of_int2.length);
    terms[kBeyondInt4] = of_int4.beyond;
    terms[kBeyondInt2] = of_int2.beyond;
    return terms;
  }

  /// What is left of a row's codes.
  struct PutCodes {
    double rounded = 0.0;  ///< the step, or without dither the length of the error
    double beyond = 0.0;   ///< the length of what is cut off of dithered ones
    double length = 0.0;   ///< ‖x̂‖
  };

  /// The same of some bits, whose dither begins at `first`.
  PutCodes put_codes(std::size_t place, const kernels::PrefixCodes& codes, std::size_t first,
                     std::span<double> x) {
    if (codes.width == 0) return {};
    const double peak = largest_magnitude(x);
    const auto likely = [&](const Coder& coder) {
      return 2.0 * coder.scale() * reach_ + beyond_reach(coder, x);
    };
    const std::uint16_t scale =
        dither_.is_random() ? cheapest_scale(codes.bits, peak, likely) : nearest_scale(codes.bits, peak, x);
    const Coder coder(codes.bits, bfloat16_value(scale));
    const double beyond = dither_.is_random() ? beyond_reach(coder, x) : 0.0;
    std::vector<double> kept(x.begin(), x.end());
    prefixes_.put_codes(place, codes, scale, dither_.t().span().subspan(first, x.size()), kept);
    double rounded = 0.0;
    double length = 0.0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      x[j] -= kept[j];
      rounded += x[j] * x[j];
      length += kept[j] * kept[j];
    }
    return {dither_.is_random() ? 2.0 * coder.scale() : std::sqrt(rounded), beyond, std::sqrt(length)};
  }

  void make_boxes(const Executor& executor, CertifiedIndex& index) const {
    index.box_weights = weigh(by_boxes_);
    std::vector<float> radii(by_boxes_.rows.size());
    std::transform(by_boxes_.rows.begin(), by_boxes_.rows.end(), radii.begin(),
                   [&](const auto& terms) { return up(row_radius(terms, index.box_weights)); });
    index.box_store = boxes_around(index.prefixes, box_width_, radii, executor);
  }

  void share_contexts(const ContextCoordinates& contexts) {
    const Eigen::MatrixXd& inside = contexts.inside;
    const Eigen::Index prefix = std::min(static_cast<Eigen::Index>(prefix_), inside.cols());
    const auto int4 = static_cast<Eigen::Index>(prefixes_.blocks().int4_width);
    const auto codes = static_cast<Eigen::Index>(codes_width_);
    const double of_int4 = inside.middleCols(prefix, int4).rowwise().norm().sum();
    const double of_int2 = inside.middleCols(prefix + int4, codes - int4).rowwise().norm().sum();
    const double of_codes = inside.middleCols(prefix, codes).rowwise().norm().sum();
    by_codes_.contexts = {reach_ * of_int4, reach_ * of_int2, kTypicallyLost * of_codes, of_int4, of_int2};
    // Where so many leading coordinates are rounded to 8 bits, and so many are met at all.
    const auto terms = [&](Eigen::Index rounded, Eigen::Index met, double of_lost) -> BoundTerms {
      return {inside.rightCols(inside.cols() - met).rowwise().norm().sum(), contexts.outside.sum(),
              inside.leftCols(rounded).rowwise().norm().sum(), contexts.errors.sum(), of_lost};
    };
    const Eigen::Index boxed = std::min(static_cast<Eigen::Index>(box_width_), inside.cols());
    const Eigen::Index stored = std::min(static_cast<Eigen::Index>(prefix_ + tail_width_), inside.cols());
    if (box_width_ > 0) by_boxes_.contexts = terms(boxed, boxed, 0.0);
    by_prefix_.contexts = terms(prefix, prefix + codes, 0.0);
    by_tails_.contexts = terms(stored, stored, by_codes_.contexts[kCodeContext]);
  }

  const RowProjector& projector_;
  const RowOrder& order_;
  std::size_t prefix_;
  std::size_t box_width_;  ///< 0: no boxes
  std::size_t codes_width_;
  Dither dither_;
  double reach_;  ///< of that, for the expected k
  Eigen::VectorXf biases_;
  std::size_t tail_width_;
  PrefixWriter prefixes_;
  TailWriter tails_;
  BoundShares<BoundTerms> by_boxes_;
  BoundShares<BoundTerms> by_prefix_;
  BoundShares<BoundTerms> by_tails_;
  BoundShares<CodeTerms> by_codes_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
