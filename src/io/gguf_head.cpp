// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf_head.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

constexpr std::string_view kOutput = "output.weight";
constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kBias = "output.bias";
constexpr std::array<std::string_view, 2> kTokensOfRows = {"d2t", "d2t.weight"};

bool divides_by_its_scale(std::string_view architecture) {
  return architecture.starts_with("granite") || architecture == "minicpm";
}

/// What files were written without that their models have all the same.
double usual_scale(std::string_view architecture, std::size_t dim) {
  if (architecture == "minicpm") return static_cast<double>(dim) / 256.0;
  return architecture == "grok" ? 1.0 / std::sqrt(3.0) : 0.0;
}
double usual_soft_cap(std::string_view architecture) {
  const bool capped = architecture == "gemma2" || architecture == "gemma3n" || architecture == "gemma4";
  return capped ? 30.0 : 0.0;
}

/// Of a model that is split over several files only the first has its metadata, and any may have the output
/// layer: one file tells what the head is where it is the first and holds that layer.
void check_split(const GgufFile& file) {
  const double files = file.number("split.count").value_or(1.0);
  const double before = file.number("split.no").value_or(0.0);
  if (files <= 1.0 || (before == 0.0 && file.contains(kOutput))) return;
  throw Error(file.path().string() + ": is one of the " + detail::number_text(files) +
              " files of a model, and does not say what the output layer is; llama-gguf-split --merge makes "
              "one file of them");
}

/// A tensor [V]. Throws Error where it is of another shape or of an unknown type.
GgufTensor value_of_every_row(const GgufFile& file, std::string_view name, std::size_t rows) {
  const GgufTensor& tensor = file.tensor(name);
  if (tensor.shape != std::vector{rows}) {
    throw file.error(name,
                     "shape is " + shape_text(tensor.shape) + ", expected " + shape_text(std::vector{rows}));
  }
  return tensor;
}

/// The nearest float, which may be infinite.
float as_float(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (std::abs(value) <= kLargest || std::isnan(value)) return static_cast<float>(value);
  return value < 0.0 ? -kInfinity : kInfinity;
}

LogitTransform transform_in(const GgufFile& file, std::size_t dim) {
  const std::string architecture(file.text("general.architecture").value_or(""));
  double scale = file.number(architecture + ".logit_scale").value_or(usual_scale(architecture, dim));
  if (scale == 0.0) scale = 1.0;
  if (divides_by_its_scale(architecture)) scale = 1.0 / scale;
  const double soft_cap =
      file.number(architecture + ".final_logit_softcapping").value_or(usual_soft_cap(architecture));
  const LogitTransform transform = {.scale = as_float(scale), .soft_cap = as_float(soft_cap)};
  detail::check_transform(transform, file.path().string() + ": ");
  return transform;
}

}  // namespace

GgufHead find_gguf_head(const GgufFile& file) {
  check_split(file);
  GgufHead head;
  head.tied = !file.contains(kOutput);
  if (head.tied && !file.contains(kEmbedding)) {
    throw Error(file.path().string() + ": has neither a tensor \"" + std::string(kOutput) + "\" nor \"" +
                std::string(kEmbedding) + "\"; is this a language model, or a part of one?");
  }
  head.weight = file.tensor(head.tied ? kEmbedding : kOutput);
  const std::vector<std::size_t>& shape = head.weight.shape;
  if (shape.size() != 2) {
    throw file.error(head.weight.name, "shape is " + shape_text(shape) + ", expected [V, d]");
  }
  if (file.contains(kBias)) head.bias = value_of_every_row(file, kBias, head.vocab());
  for (const std::string_view name : kTokensOfRows) {
    if (head.tied || head.d2t || !file.contains(name)) continue;
    head.d2t = value_of_every_row(file, name, head.vocab());
  }
  head.name = file.text("general.name").value_or("");
  if (head.name.empty()) head.name = file.path().stem().string();
  head.transform = transform_in(file, head.dim());
  return head;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
