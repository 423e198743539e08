// SPDX-License-Identifier: Apache-2.0
#include "evaluation/tuning_plan.hpp"

#include <algorithm>
#include <utility>

#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/screeners/adaptive_softmax.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/screeners/certify.hpp"
#include "topksoftmax/screeners/fgd.hpp"
#include "topksoftmax/screeners/greedy_mips.hpp"
#include "topksoftmax/screeners/l2s.hpp"
#include "topksoftmax/screeners/lsh_mips.hpp"
#include "topksoftmax/screeners/pca_mips.hpp"
#include "topksoftmax/screeners/quantized.hpp"
#include "topksoftmax/screeners/shortlist.hpp"
#include "topksoftmax/screeners/svd_softmax.hpp"
#include "topksoftmax/screeners/wta_lsh.hpp"
#include "topksoftmax/screeners/wta_lsh_each.hpp"

namespace topksoftmax {
namespace {

/// Clusters of the smallest L2S that is tried.
constexpr std::size_t kFewClusters = 30;

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

std::vector<TuningEffort> named_efforts(const std::string& name, const std::vector<std::size_t>& values) {
  std::vector<TuningEffort> efforts;
  for (const std::size_t value : values) efforts.push_back({name + "=" + std::to_string(value), value});
  return efforts;
}

/// A share of the vocabulary, at least so many tokens.
std::size_t share_of(std::size_t vocab, std::size_t divisor, std::size_t least) {
  return std::min(std::max(vocab / divisor, least), vocab);
}

TuningModel l2s_model(const TuningMaterial& material, std::string_view name, std::size_t clusters,
                      std::size_t budget) {
  const bool learned = name == "l2s";
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
  return {.settings = fields.settings(),
          .code = fields.call(learned ? "L2S::train" : "L2S::train_kmeans", "layer, contexts"),
          .build = [=, layer = material.layer, contexts = material.fit] {
            return L2S::train(layer, contexts, options, learned ? "l2s" : "l2s-kmeans");
          }};
}

TuningAxis l2s_axis(const TuningMaterial& material, std::string_view name, std::size_t clusters) {
  const std::size_t vocab = material.layer.vocab();
  TuningAxis axis{.backend = std::string(name)};
  for (const std::size_t budget : geometric(std::min<std::size_t>(10, vocab), share_of(vocab, 10, 20), 8)) {
    TuningModel model = l2s_model(material, name, clusters, budget);
    for (TuningEffort& visited : named_efforts("effort", {2, 3, 4, 6, 8})) {
      model.efforts.push_back(std::move(visited));
    }
    axis.models.push_back(std::move(model));
  }
  return axis;
}

/// L2S from k-means, which learning refines.
TuningAxis l2s_kmeans_axis(const TuningMaterial& material, std::size_t clusters) {
  TuningAxis axis = l2s_axis(material, "l2s-kmeans", clusters);
  axis.refined = std::make_shared<const TuningAxis>(l2s_axis(material, "l2s", clusters));
  return axis;
}

TuningAxis svd_axis(const TuningMaterial& material, std::size_t preview_width) {
  const std::size_t vocab = material.layer.vocab();
  Fields fields;
  fields.add("preview_width", preview_width);
  return {.backend = "svd",
          .models = {{.settings = fields.settings(),
                      .code = fields.call("SvdSoftmax::build", "layer"),
                      .build =
                          [=, layer = material.layer] {
                            return SvdSoftmax::build(layer, {.preview_width = preview_width});
                          },
                      .efforts = named_efforts("refine_width", geometric(std::min(material.k, vocab),
                                                                         share_of(vocab, 10, 20), 8))}}};
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
    axis.models.push_back({.settings = fields.settings(),
                           .code = fields.call("AdaptiveSoftmax::build", "layer, contexts"),
                           .build = [=, layer = material.layer, contexts = material.fit] {
                             return AdaptiveSoftmax::build(layer, contexts, options);
                           }});
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
    axis.models.push_back(
        {.settings = fields.settings(),
         .code = fields.call("Shortlist::build", "layer"),
         .build = [=, layer = material.layer] { return Shortlist::build(layer, options); }});
  }
  return axis;
}

TuningAxis fgd_axis(const TuningMaterial& material) {
  const std::size_t vocab = material.layer.vocab();
  return {
      .backend = "fgd",
      .models = {{.code = "Fgd::build(layer, contexts)",
                  .build = [layer = material.layer,
                            contexts = material.fit] { return Fgd::build(layer, contexts, FgdOptions{}); },
                  .efforts = named_efforts("ef_search",
                                           geometric(std::min(std::max<std::size_t>(material.k, 10), vocab),
                                                     share_of(vocab, 16, 20), 12))}}};
}

TuningAxis wta_lsh_axis(const TuningMaterial& material, std::size_t top_frequent) {
  Fields fields;
  fields.add("top_frequent", top_frequent);
  add_counts(fields, material);
  WtaLshOptions options;
  options.top_frequent = top_frequent;
  options.counts = material.counts;
  std::vector<TuningEffort> efforts;
  for (const std::size_t threshold : {16U, 12U, 8U, 6U, 5U, 4U, 3U}) {
    efforts.push_back({"threshold=" + std::to_string(threshold), options.hash.bands + 1 - threshold});
  }
  return {.backend = "wta-lsh",
          .models = {{.settings = fields.settings(),
                      .code = fields.call("WtaLsh::build", "layer"),
                      .build = [=, layer = material.layer] { return WtaLsh::build(layer, options); },
                      .efforts = std::move(efforts)}}};
}

/// A system of defaults that are built from the layer alone, and of values for its queries' effort.
TuningAxis layer_axis(std::string backend, const std::string& function, TuningBuild build,
                      const std::string& effort, const std::vector<std::size_t>& values) {
  return {.backend = std::move(backend),
          .models = {{.code = function + "(layer)",
                      .build = std::move(build),
                      .efforts = named_efforts(effort, values)}}};
}

TuningAxis wta_lsh_each_axis(const SoftmaxLayer& layer) {
  const std::size_t vocab = layer.vocab();
  return layer_axis(
      "wta-lsh-each", "WtaLshEach::build", [layer] { return WtaLshEach::build(layer); }, "top_collisions",
      geometric(share_of(vocab, 200, 1), share_of(vocab, 3, 1), 8));
}

TuningAxis greedy_mips_axis(const SoftmaxLayer& layer) {
  const std::size_t vocab = layer.vocab();
  return layer_axis(
      "greedy-mips", "GreedyMips::build", [layer] { return GreedyMips::build(layer); }, "budget",
      geometric(share_of(vocab, 100, 1), share_of(vocab, 2, 1), 8));
}

TuningAxis lsh_mips_axis(const SoftmaxLayer& layer) {
  const std::size_t buckets = std::size_t{1} << LshMipsOptions{}.bits;
  return layer_axis(
      "lsh-mips", "LshMips::build", [layer] { return LshMips::build(layer); }, "probes",
      geometric(1, buckets / 2, 8));
}

TuningAxis pca_mips_axis(const SoftmaxLayer& layer) {
  const std::size_t leaves = std::size_t{1} << PcaMipsOptions{}.depth;
  return layer_axis(
      "pca-mips", "PcaMips::build", [layer] { return PcaMips::build(layer); }, "leaves",
      geometric(1, leaves / 2, 7));
}

/// How Certified is built for the k that is asked for.
CertifiedOptions certified_options(const TuningMaterial& material, Fields& fields) {
  CertifiedOptions options;
  if (material.k != options.expected_k) {
    options.expected_k = material.k;
    fields.add_code("expected_k", std::to_string(material.k));
  }
  return options;
}

/// Proofs around L2S. They make any L2S slower, so what counts is the quickest start: short lists.
TuningAxis certify_axis(const TuningMaterial& material) {
  Fields fields;
  const CertifiedOptions options = certified_options(material, fields);
  TuningAxis axis{.backend = "certify:l2s-kmeans", .exact = true};
  for (const std::size_t size : {2U, 4U}) {
    const std::size_t budget = std::min(size * material.k, material.layer.vocab());
    const TuningModel lists = l2s_model(material, "l2s-kmeans", kFewClusters, budget);
    axis.models.push_back({.settings = lists.settings,
                           .code = fields.call("Certify::wrap", lists.code + ", contexts"),
                           .build = [options, wrapped = lists.build, contexts = material.fit] {
                             return Certify::wrap(wrapped(), contexts, options);
                           }});
  }
  return axis;
}

}  // namespace

std::vector<TuningAxis> standard_axes(const TuningMaterial& material) {
  const auto single = [](std::string backend, bool exact, std::string code, TuningBuild build) {
    return TuningAxis{.backend = std::move(backend),
                      .exact = exact,
                      .models = {{.code = std::move(code), .build = std::move(build)}}};
  };
  Fields fields;
  const CertifiedOptions options = certified_options(material, fields);
  return {
      single("fused", true, "Fused::make(layer)", [layer = material.layer] { return Fused::make(layer); }),
      single("certified", true, fields.call("Certified::build", "layer, contexts"),
             [=, layer = material.layer, contexts = material.fit] {
               return Certified::build(layer, contexts, options);
             }),
      single("quantized", false, "Quantized::build(layer)",
             [layer = material.layer] { return Quantized::build(layer); })};
}

std::vector<TuningAxis> searched_axes(const TuningMaterial& material) {
  const SoftmaxLayer& layer = material.layer;
  std::vector<TuningAxis> axes;
  if (!material.counts.empty()) axes.push_back(shortlist_axis(material));
  for (const std::size_t width : geometric(share_of(layer.dim(), 8, 1), share_of(layer.dim(), 2, 1), 3)) {
    axes.push_back(svd_axis(material, width));
  }
  for (const std::size_t clusters : {kFewClusters, std::size_t{100}, std::size_t{200}}) {
    axes.push_back(l2s_kmeans_axis(material, clusters));
  }
  axes.push_back(fgd_axis(material));
  axes.push_back(adaptive_axis(material));
  for (const std::size_t divisor : {50U, 10U}) {
    axes.push_back(wta_lsh_axis(material, share_of(layer.vocab(), divisor, 1)));
  }
  axes.push_back(wta_lsh_each_axis(layer));
  axes.push_back(pca_mips_axis(layer));
  axes.push_back(lsh_mips_axis(layer));
  axes.push_back(greedy_mips_axis(layer));
  axes.push_back(certify_axis(material));
  return axes;
}

std::size_t count_settings(const TuningAxis& axis) {
  std::size_t count = axis.refined == nullptr ? 0 : count_settings(*axis.refined);
  for (const TuningModel& model : axis.models) count += model.efforts.size();
  return count;
}

}  // namespace topksoftmax
