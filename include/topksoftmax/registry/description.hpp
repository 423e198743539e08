// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/registry/backend_builder.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What holds for every backend of a description.
struct BackendTraits {
  bool exact = false;           ///< every answer is the exact top-k, and says so (TopK::certified)
  bool scans_all = false;       ///< scores every token in full precision: speedups are against the fastest
  bool needs_contexts = false;  ///< to learn from
  bool shares_batches = false;  ///< candidates are shared over a batch, which may add some to a query's list
  bool exhaustible = true;      ///< with QueryOptions::full_effort the answer is the exact top-k
  bool has_index = true;        ///< it can be saved
};

/// Its row in the table that helps users choose. Backends with the same text share a row.
struct BackendAdvice {
  int place = 0;           ///< the rows are in this order
  std::string names = {};  ///< empty: it has no row
  /// What its answers are.
  std::string answers = {};
  /// What it learns from.
  std::string learns_from = {};
  /// When to take it.
  std::string take_when = {};
};

/// A tensor of a backend's index.
struct TensorDescription {
  std::string name;   ///< N stands for any number: "upper.N.offsets"
  std::string type;   ///< of safetensors: "F32"
  std::string shape;  ///< of V, d, options, and names of its own: "[r + 1]"; *: any size
  /// What its values are.
  std::string meaning;
};

/// An option that trades speed for precision, and values for it, from the fastest and least precise on.
struct OptionAxis {
  /// The option's name.
  std::string option;
  /// For a layer, and k tokens asked for.
  std::function<std::vector<std::size_t>(const SoftmaxLayer&, std::size_t k)> values;
  /// The QueryOptions::effort that stands for a value, given every option's value as text: one build serves
  /// them all. Empty: each value needs a build.
  std::function<std::size_t(std::size_t value, const Settings& values)> effort = {};
};

/// How tune() tries a backend. Without axes of its own it takes those of the description: the one with an
/// effort as `efforts`, the last of the others as `models`.
struct TuningPlan {
  double turn = 50.0;         ///< lower ones are tried first: what is quick to build and likely to win
  bool always = false;        ///< with its defaults only, whatever the time, and timed whatever its precision
  bool needs_counts = false;  ///< it is not tried where token counts are unknown
  std::vector<OptionAxis> searches = {};   ///< each combination of these is searched of its own
  std::optional<OptionAxis> models = {};   ///< each value a build
  std::optional<OptionAxis> efforts = {};  ///< of one build; 0: as built
  std::string refined_by = {};  ///< a backend that takes the same settings, and learns with more effort
};

/// The settings that suit another backend which wraps this one: Certify wants short lists.
struct WrappedUse {
  Settings settings = {};                 ///< in place of the defaults
  std::vector<OptionAxis> axes = {};      ///< empty: the backend's own
  std::optional<TuningPlan> tuning = {};  ///< empty: tune() does not try it wrapped
};

/// All that there is to know of a backend, in one place. A value. A Registry takes it; index files, tune(),
/// the benchmark and tests read it there. Each system has its own in description.hpp, beside its build.hpp.
struct BackendDescription {
  std::string name;  ///< as command lines name it: "l2s-kmeans"
  std::string kind;  ///< of its indexes: "l2s"
  /// One sentence for lists.
  std::string summary;
  /// Its row in the table that helps users choose.
  BackendAdvice advice = {};
  /// What it promises and needs.
  BackendTraits traits = {};
  /// How it is built, and from which options.
  BackendBuilder builder;
  /// Makes one of an index: &load_as<L2S>.
  std::unique_ptr<TopKSoftmax> (*loader)(const IndexReader&) = nullptr;
  std::vector<OptionAxis> axes = {};  ///< what a sweep varies, every combination; one at most has an effort
  std::optional<TuningPlan> tuning = TuningPlan{};    ///< empty: tune() does not try it
  std::function<Settings(std::size_t k)> for_k = {};  ///< the settings that answers of k tokens call for
  /// How it is used within another backend.
  WrappedUse wrapped = {};
  /// What its indexes hold.
  std::vector<TensorDescription> tensors = {};
  bool wraps = false;  ///< it is made around another, BuildMaterial::wrapped, and named "certify:l2s"

  /// Its options in the order of their declaration.
  const std::vector<OptionDescription>& options() const { return builder.options; }

  /// Builds it. Throws Error for unknown options, for values that cannot be read, and as the backend does.
  std::unique_ptr<TopKSoftmax> build(const BuildMaterial& material, const Settings& settings = {}) const {
    BuildMaterial complete = material;
    if (material.contexts.count == 0 && material.contexts.dim == 0)
      complete.contexts = Contexts::none(material.layer.dim());
    return builder.build(name, complete, settings);
  }

  /// Every option's value under these settings; empty: the backend chooses. Throws Error for unknown options
  /// and for values that cannot be read.
  Settings values(const Settings& settings = {}) const { return builder.values(name, settings); }

  /// These settings, and those that answers of k tokens call for where they say nothing.
  Settings suited_to(std::size_t k, Settings settings = {}) const {
    if (for_k) settings.merge(for_k(k));
    return settings;
  }

  /// What builds it in C++: "L2S::train(layer, contexts, {.budget = 50})".
  std::string code(const Settings& settings = {}, bool counts = false) const {
    return builder.code(settings, counts, {});
  }

  /// The backend of an index of its kind.
  std::unique_ptr<TopKSoftmax> load(const IndexReader& in) const { return loader(in); }
};

/// The loader of a backend that has a static member load(const IndexReader&).
template <class Backend>
std::unique_ptr<TopKSoftmax> load_as(const IndexReader& in) {
  return load_usual<Backend>(in);
}

/// The same description without other options than these, under another name. The others keep
/// their defaults, whatever k is.
inline BackendDescription narrowed(BackendDescription description, std::string name,
                                   const std::vector<std::string>& options) {
  std::vector<OptionDescription> kept;
  for (const std::string& wanted : options) {
    for (const OptionDescription& option : description.builder.options) {
      if (option.name == wanted) kept.push_back(option);
    }
  }
  BackendBuilder& builder = description.builder;
  builder.options = kept;
  builder.build = [kept, build = builder.build](std::string_view backend, const BuildMaterial& material,
                                                const Settings& settings) {
    check_known(backend, kept, settings);
    return build(backend, material, settings);
  };
  builder.values = [kept, values = builder.values](std::string_view backend, const Settings& settings) {
    check_known(backend, kept, settings);
    Settings all = values(backend, settings);
    Settings some;
    for (const OptionDescription& option : kept) some[option.name] = std::move(all[option.name]);
    return some;
  };
  if (description.for_k) {
    description.for_k = [options, for_k = description.for_k](std::size_t k) {
      Settings some = for_k(k);
      std::erase_if(some, [&options](const auto& setting) {
        return std::find(options.begin(), options.end(), setting.first) == options.end();
      });
      return some;
    };
  }
  description.name = std::move(name);
  return description;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
