// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/joined.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/registry/unknown_kind.hpp"
#include "topksoftmax/registry/wrapped_description.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Backends by name: a value, which holds the descriptions that were added to it, and knows no other. It
/// builds them, loads their indexes, and is what tune() and the benchmark choose from. One of your own is a
/// line: registry.add<Mine>().
class Registry final : public BackendLoader {
 public:
  /// Every backend of the library. Defined in registry/standard.hpp.
  static Registry standard();

  /// Adds a backend, or one that wraps others. A name such as "certify:l2s" takes the place of what find()
  /// would make of it. Throws Error where one of that name was added, for a name that command lines could not
  /// tell from others, and for a description that cannot build or load.
  Registry& add(BackendDescription description);

  /// The same for a class that describes itself: static BackendDescription describe().
  template <class Backend>
  Registry& add() {
    return add(Backend::describe());
  }

  /// What was added, in that order, without what wraps others.
  std::span<const BackendDescription> descriptions() const { return descriptions_; }
  /// What was added to wrap others.
  std::span<const BackendDescription> wrappers() const { return wrappers_; }
  /// Both, what wraps others last.
  std::vector<const BackendDescription*> all() const;

  /// The description of this name: one that was added, or "certify:NAME" of any of these. Throws Error, which
  /// lists the names, if there is none.
  BackendDescription find(std::string_view name) const;

  /// Builds find(name): see BackendDescription::build.
  std::unique_ptr<TopKSoftmax> build(std::string_view name, const BuildMaterial& material,
                                     const Settings& settings = {}) const {
    return find(name).build(material, settings);
  }

  /// The backend of an index: of a kind that one of the descriptions has, or a MappedVocabulary of one of
  /// these. Throws Error for any other kind, and for what cannot be used.
  std::unique_ptr<TopKSoftmax> load(const IndexReader& in) const override;

  /// The kinds of indexes that it loads, each once.
  std::vector<std::string> kinds() const;

 private:
  std::optional<BackendDescription> look_up(std::string_view name) const;

  std::vector<BackendDescription> descriptions_;
  std::vector<BackendDescription> wrappers_;
};

inline Registry& Registry::add(BackendDescription description) {
  const std::string in_quotes = detail::in_quotes(description.name);
  if (description.name.empty() || description.name.find_first_of(",.= \t\n") != std::string::npos) {
    throw Error("registry: a backend is named " + in_quotes +
                "; a name must have no spaces, commas, full stops or equals signs, and not be empty");
  }
  for (const BackendDescription* const one : all()) {
    if (one->name == description.name) throw Error("registry: there is a backend " + in_quotes + " already");
  }
  if (!description.builder.build) throw Error("registry: the backend " + in_quotes + " has no builder");
  if (description.traits.has_index && (description.loader == nullptr || description.kind.empty())) {
    throw Error("registry: the backend " + in_quotes +
                " has no kind or no loader; without an index its traits must say so");
  }
  (description.wraps ? wrappers_ : descriptions_).push_back(std::move(description));
  return *this;
}

inline std::vector<const BackendDescription*> Registry::all() const {
  std::vector<const BackendDescription*> all;
  for (const std::vector<BackendDescription>* const some : {&descriptions_, &wrappers_}) {
    for (const BackendDescription& description : *some) all.push_back(&description);
  }
  return all;
}

inline std::optional<BackendDescription> Registry::look_up(std::string_view name) const {
  for (const BackendDescription& description : descriptions_) {
    if (description.name == name) return description;
  }
  for (const BackendDescription& wrapper : wrappers_) {
    if (wrapper.name == name) return wrapper;
    const std::string prefix = wrapper.name + ":";
    if (!name.starts_with(prefix)) continue;
    const std::optional<BackendDescription> inner = look_up(name.substr(prefix.size()));
    if (inner && !inner->wraps) return detail::wrapped_description(wrapper, *inner);
  }
  return std::nullopt;
}

inline BackendDescription Registry::find(std::string_view name) const {
  if (std::optional<BackendDescription> found = look_up(name); found && !found->wraps)
    return *std::move(found);
  throw Error("there is no backend \"" + std::string(name) + "\"; there are " +
              detail::joined(descriptions_, &BackendDescription::name));
}

inline std::unique_ptr<TopKSoftmax> Registry::load(const IndexReader& in) const {
  for (const BackendDescription* const one : all()) {
    if (one->traits.has_index && one->kind == in.kind()) return one->load(in);
  }
  // No description has it: who builds one has a map to give, which is no setting.
  if (in.kind() == MappedVocabulary::kind) return load_usual<MappedVocabulary>(in);
  throw detail::unknown_kind(in, detail::joined(kinds()));
}

inline std::vector<std::string> Registry::kinds() const {
  std::vector<std::string> kinds;
  const auto add = [&kinds](std::string_view kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.emplace_back(kind);
  };
  for (const BackendDescription* const one : all()) {
    if (one->traits.has_index) add(one->kind);
  }
  add(MappedVocabulary::kind);
  return kinds;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
