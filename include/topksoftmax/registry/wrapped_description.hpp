// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/registry/backend_builder.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/settings.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The options of a wrapper and of what it wraps, as those of one backend. An option that both have is the
/// wrapped one's; the wrapper's goes by its own name before it: "certify:context_sample".
class WrappedOptions {
 public:
  WrappedOptions(const BackendDescription& outer, const BackendDescription& inner)
      : defaults_(inner.wrapped.settings) {
    for (const OptionDescription& option : inner.options()) {
      options_.push_back(option);
      if (const auto found = defaults_.find(option.name); found != defaults_.end())
        options_.back().default_value = found->second;
    }
    for (const OptionDescription& option : outer.options()) {
      const bool taken = std::any_of(options_.begin(), options_.end(),
                                     [&](const OptionDescription& one) { return one.name == option.name; });
      const std::string name = (taken ? outer.name + ":" : "") + option.name;
      outer_names_[name] = option.name;
      options_.push_back(option);
      options_.back().name = name;
    }
  }

  const std::vector<OptionDescription>& options() const { return options_; }

  /// Those of the wrapped backend, and those of the wrapper, each by its own name.
  Settings inner(const Settings& settings) const {
    Settings own = defaults_;
    for (const auto& [name, text] : settings) {
      if (!outer_names_.contains(name)) own[name] = text;
    }
    return own;
  }
  Settings outer(const Settings& settings) const {
    Settings own;
    for (const auto& [name, text] : settings) {
      if (const auto found = outer_names_.find(name); found != outer_names_.end()) own[found->second] = text;
    }
    return own;
  }

  /// Both again, of values by their own names.
  Settings joined(Settings inner, const Settings& outer) const {
    for (const auto& [name, own_name] : outer_names_) inner[name] = outer.at(own_name);
    return inner;
  }

 private:
  Settings defaults_;
  std::vector<OptionDescription> options_;
  Settings outer_names_;  ///< by the name that they go by here
};

inline BackendBuilder wrapped_builder(const BackendDescription& outer, const BackendDescription& inner) {
  const WrappedOptions options(outer, inner);
  BackendBuilder made;
  made.options = options.options();
  made.takes_counts = inner.builder.takes_counts;
  made.headers = inner.builder.headers;
  made.headers.insert(made.headers.end(), outer.builder.headers.begin(), outer.builder.headers.end());
  made.build = [options, outer = outer.builder.build, inner = inner.builder.build](
                   std::string_view backend, const BuildMaterial& material, const Settings& settings) {
    check_known(backend, options.options(), settings);
    BuildMaterial within = material;
    within.progress = part_of(material.progress, 0.0, 0.5);
    BuildMaterial around = material;
    around.progress = part_of(material.progress, 0.5, 1.0);
    around.wrapped = inner(backend, within, options.inner(settings));
    return outer(backend, around, options.outer(settings));
  };
  made.values = [options, outer = outer.builder.values, inner = inner.builder.values](
                    std::string_view backend, const Settings& settings) {
    check_known(backend, options.options(), settings);
    return options.joined(inner(backend, options.inner(settings)), outer(backend, options.outer(settings)));
  };
  made.code = [options, outer = outer.builder.code, inner = inner.builder.code](
                  const Settings& settings, bool counts, const std::string& wrapped) {
    return outer(options.outer(settings), counts, inner(options.inner(settings), counts, wrapped));
  };
  return made;
}

/// The description of a wrapper with this backend in it.
inline BackendDescription wrapped_description(const BackendDescription& outer,
                                              const BackendDescription& inner) {
  BackendDescription both = outer;
  both.name = outer.name + ":" + inner.name;
  both.summary = inner.summary + "; " + outer.summary;
  both.advice = {};
  both.traits.needs_contexts = outer.traits.needs_contexts || inner.traits.needs_contexts;
  both.traits.has_index = outer.traits.has_index && inner.traits.has_index;
  both.builder = wrapped_builder(outer, inner);
  both.axes = inner.wrapped.axes.empty() ? inner.axes : inner.wrapped.axes;
  both.tuning = inner.wrapped.tuning;
  both.for_k = [inner, outer](std::size_t k) { return outer.suited_to(k, inner.suited_to(k)); };
  both.wrapped = {};
  both.wraps = false;
  return both;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
