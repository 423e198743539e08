// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/registry/option_table.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a backend is built from. Views: what they show must outlive the build.
struct BuildMaterial {
  /// The layer that is asked: [V×d].
  SoftmaxLayer layer;
  Contexts contexts = {};                     ///< to learn from; may be none
  std::span<const std::int64_t> counts = {};  ///< [V], how often each token occurred, or empty: unknown
  /// Threads for the build.
  const Executor& executor = default_executor();
  TrainingProgress progress = {};                   ///< may throw, to give learning up
  std::shared_ptr<const TopKSoftmax> wrapped = {};  ///< for backends that wrap another
};

/// A call that builds a backend, as C++ writes it.
struct BuildCall {
  std::string function;  ///< "L2S::train"
  std::string
      arguments;       ///< "layer, contexts": those before the options; {wrapped}: the wrapped backend's call
  std::string header;  ///< that defines it: "topksoftmax/l2s/build.hpp"
};

/// How a backend is built from options given as text. See builder().
struct BackendBuilder {
  /// In the order of their declaration, with their defaults.
  std::vector<OptionDescription> options = {};
  /// Whether it uses how often each token occurred.
  bool takes_counts = false;
  /// Builds a backend that errors call by this name.
  std::function<std::unique_ptr<TopKSoftmax>(std::string_view backend, const BuildMaterial&, const Settings&)>
      build = {};
  /// Every option's value under these settings.
  std::function<Settings(std::string_view backend, const Settings&)> values = {};
  /// The call of C++ that builds it with these settings, where `counts` are given and `wrapped` is the call
  /// that makes a backend to wrap.
  std::function<std::string(const Settings&, bool counts, const std::string& wrapped)> code = {};
  /// Headers that this call needs.
  std::vector<std::string> headers = {};
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

template <class Options>
inline constexpr bool has_counts = requires(Options& options) {
  options.counts = std::vector<std::int64_t>();
};

template <class Options>
inline constexpr bool has_progress = requires(Options& options) {
  options.progress = TrainingProgress();
};

/// Puts the wrapped backend's call where `arguments` want it.
inline std::string with_wrapped(std::string arguments, const std::string& wrapped) {
  constexpr std::string_view place = "{wrapped}";
  const std::size_t found = arguments.find(place);
  return found == std::string::npos ? arguments : arguments.replace(found, place.size(), wrapped);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The builder of a backend that is made by `build(const BuildMaterial&, const Options&)`, which returns a
/// std::unique_ptr to it. Options that have `counts` (a vector, declared last of those that C++ may name) and
/// `progress` are given those of the material.
template <VisitedOptions Options, class Build>
BackendBuilder builder(BuildCall call, Build build) {
  BackendBuilder made;
  made.options = detail::option_table<Options>();
  made.takes_counts = detail::has_counts<Options>;
  made.headers = {call.header};
  made.build = [build = std::move(build)](std::string_view backend, const BuildMaterial& material,
                                          const Settings& settings) -> std::unique_ptr<TopKSoftmax> {
    Options options = detail::options_of<Options>(backend, settings);
    if constexpr (detail::has_counts<Options>)
      options.counts.assign(material.counts.begin(), material.counts.end());
    if constexpr (detail::has_progress<Options>) options.progress = material.progress;
    return build(material, options);
  };
  made.values = [](std::string_view backend, const Settings& settings) {
    Settings values;
    for (OptionDescription& option : detail::option_table(detail::options_of<Options>(backend, settings)))
      values[option.name] = std::move(option.default_value);
    return values;
  };
  made.code = [call = std::move(call)](const Settings& settings, bool counts, const std::string& wrapped) {
    detail::OptionCode fields(settings);
    const Options options;
    Options::visit(options, fields);
    if (counts && detail::has_counts<Options>) fields.add("counts", "counts");
    return call.function + "(" + detail::with_wrapped(call.arguments, wrapped) +
           (fields.text.empty() ? ")" : ", {" + fields.text + "})");
  };
  return made;
}

/// Options of a backend that has none.
struct NoOptions {
  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& /*options*/, Visit&& /*visit*/) {}
};

}  // namespace TOPKSOFTMAX_NAMESPACE
