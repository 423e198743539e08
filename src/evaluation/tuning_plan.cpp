// SPDX-License-Identifier: Apache-2.0
#include "evaluation/tuning_plan.hpp"

#include <algorithm>
#include <utility>

#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/screeners/adaptive_softmax.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/screeners/fgd.hpp"
#include "topksoftmax/screeners/l2s.hpp"
#include "topksoftmax/screeners/quantized.hpp"
#include "topksoftmax/screeners/shortlist.hpp"
#include "topksoftmax/screeners/svd_softmax.hpp"

namespace topksoftmax {
namespace {

/// Fields of an option struct as both the harness and C++ write them.
class Fields {
 public:
  Fields& add(const std::string& name, const std::string& value) {
    settings_ += (settings_.empty() ? "" : " ") + name + "=" + value;
    return add_code(name, value);
  }
  Fields& add(const std::string& name, std::size_t value) { return add(name, std::to_string(value)); }

  /// One that the reader of a table need not see.
  Fields& add_code(const std::string& name, const std::string& value) {
    code_ += (code_.empty() ? "{." : ", .") + name + " = " + value;
    return *this;
  }

  const std::string& settings() const { return settings_; }

  /// A call with these as its last argument.
  std::string call(const std::string& function, const std::string& arguments) const {
    return function + "(" + arguments + (code_.empty() ? ")" : ", " + code_ + "})");
  }

 private:
  std::string settings_;
  std::string code_;
};

std::shared_ptr<const TuningBuild> make_build(TuningBuild build) {
  return std::make_shared<const TuningBuild>(std::move(build));
}

/// The points of one build, which differ in their queries' effort.
std::vector<TuningPoint> effort_points(const std::string& code, const std::string& settings,
                                       const std::string& name, const std::vector<std::size_t>& efforts,
                                       const std::shared_ptr<const TuningBuild>& build) {
  std::vector<TuningPoint> points;
  for (const std::size_t effort : efforts) {
    points.push_back({.settings = settings + name + "=" + std::to_string(effort),
                      .code = code,
                      .build = build,
                      .effort = effort});
  }
  return points;
}

/// A share of the vocabulary, at least so many tokens.
std::size_t share_of(std::size_t vocab, std::size_t divisor, std::size_t least) {
  return std::min(std::max(vocab / divisor, least), vocab);
}

TuningAxis l2s_axis(const TuningMaterial& material, std::string_view name, std::size_t clusters) {
  const bool learned = name == "l2s";
  const std::size_t vocab = material.layer.vocab();
  TuningAxis axis{.backend = std::string(name)};
  for (const std::size_t budget : geometric(std::min<std::size_t>(10, vocab), share_of(vocab, 10, 20), 8)) {
    L2SOptions options;
    options.clusters = clusters;
    options.budget = static_cast<double>(budget);
    Fields fields;
    fields.add("clusters", clusters).add("budget", budget);
    if (material.k != options.label_count) {
      options.label_count = material.k;
      options.label_depth = std::max(options.label_depth, 3 * material.k);
      fields.add_code("label_count", std::to_string(options.label_count))
          .add_code("label_depth", std::to_string(options.label_depth));
    }
    if (!learned) options.rounds = 0;
    options.progress = material.progress;
    axis.points.push_back(
        {.settings = fields.settings(),
         .code = fields.call(learned ? "L2S::train" : "L2S::train_kmeans", "layer, contexts"),
         .build = make_build([=, layer = material.layer, contexts = material.fit] {
           return L2S::train(layer, contexts, options, learned ? "l2s" : "l2s-kmeans");
         })});
  }
  return axis;
}

TuningAxis svd_axis(const TuningMaterial& material, std::size_t preview_width) {
  const std::size_t vocab = material.layer.vocab();
  const std::string width = std::to_string(preview_width);
  Fields fields;
  fields.add("preview_width", preview_width);
  return {.backend = "svd",
          .points = effort_points(fields.call("SvdSoftmax::build", "layer"), fields.settings() + " ",
                                  "refine_width",
                                  geometric(std::min(material.k, vocab), share_of(vocab, 10, 20), 8),
                                  make_build([=, layer = material.layer] {
                                    return SvdSoftmax::build(layer, {.preview_width = preview_width});
                                  }))};
}

/// Sizes for lists of frequent tokens.
std::vector<std::size_t> list_sizes(std::size_t vocab) {
  return geometric(share_of(vocab, 100, 1), share_of(vocab, 2, 1), 8);
}

/// What follows the settings of those that know how frequent tokens are.
void add_counts(Fields& fields, const TuningMaterial& material) {
  if (!material.counts.empty()) fields.add_code("counts", "counts");
}

TuningAxis adaptive_axis(const TuningMaterial& material) {
  TuningAxis axis{.backend = "adaptive"};
  for (const std::size_t head : list_sizes(material.layer.vocab())) {
    Fields fields;
    fields.add("head", head);
    add_counts(fields, material);
    AdaptiveSoftmaxOptions options;
    options.head = head;
    options.counts = material.counts;
    axis.points.push_back({.settings = fields.settings(),
                           .code = fields.call("AdaptiveSoftmax::build", "layer, contexts"),
                           .build = make_build([=, layer = material.layer, contexts = material.fit] {
                             return AdaptiveSoftmax::build(layer, contexts, options);
                           })});
  }
  return axis;
}

TuningAxis shortlist_axis(const TuningMaterial& material) {
  TuningAxis axis{.backend = "shortlist"};
  for (const std::size_t size : list_sizes(material.layer.vocab())) {
    Fields fields;
    fields.add("top_frequent", size);
    add_counts(fields, material);
    const ShortlistOptions options = {.top_frequent = size, .counts = material.counts};
    axis.points.push_back(
        {.settings = fields.settings(),
         .code = fields.call("Shortlist::build", "layer"),
         .build = make_build([=, layer = material.layer] { return Shortlist::build(layer, options); })});
  }
  return axis;
}

TuningAxis fgd_axis(const TuningMaterial& material) {
  const std::size_t vocab = material.layer.vocab();
  return {.backend = "fgd",
          .points = effort_points(
              "Fgd::build(layer, contexts)", "", "ef_search",
              geometric(std::min(std::max<std::size_t>(material.k, 10), vocab), share_of(vocab, 16, 20), 12),
              make_build([layer = material.layer, contexts = material.fit] {
                return Fgd::build(layer, contexts, FgdOptions{});
              }))};
}

}  // namespace

std::vector<TuningAxis> standard_axes(const TuningMaterial& material) {
  const auto single = [](std::string backend, bool exact, std::string code, TuningBuild build) {
    return TuningAxis{.backend = std::move(backend),
                      .exact = exact,
                      .points = {{.code = std::move(code), .build = make_build(std::move(build))}}};
  };
  Fields certified;
  CertifiedOptions certified_options;
  if (material.k != certified_options.expected_k) {
    certified_options.expected_k = material.k;
    certified.add_code("expected_k", std::to_string(material.k));
  }
  return {
      single("fused", true, "Fused::make(layer)", [layer = material.layer] { return Fused::make(layer); }),
      single("certified", true, certified.call("Certified::build", "layer, contexts"),
             [=, layer = material.layer, contexts = material.fit] {
               return Certified::build(layer, contexts.data, contexts.count, contexts.dim, contexts.stride,
                                       certified_options);
             }),
      single("quantized", false, "Quantized::build(layer)",
             [layer = material.layer] { return Quantized::build(layer); })};
}

std::vector<TuningAxis> searched_axes(const TuningMaterial& material) {
  const std::size_t dim = material.layer.dim();
  std::vector<TuningAxis> axes;
  if (!material.counts.empty()) axes.push_back(shortlist_axis(material));
  axes.push_back(adaptive_axis(material));
  for (const std::size_t width : geometric(share_of(dim, 8, 1), share_of(dim, 2, 1), 3))
    axes.push_back(svd_axis(material, width));
  for (const std::size_t clusters : {30U, 100U}) axes.push_back(l2s_axis(material, "l2s-kmeans", clusters));
  axes.push_back(fgd_axis(material));
  axes.push_back(l2s_axis(material, "l2s", 100));
  return axes;
}

}  // namespace topksoftmax
