// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "c/executor.hpp"
#include "c/guard.hpp"
#include "c/handles.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

namespace {

/// The settings of "clusters=100 budget=300". Throws Error for words of another form, and names that are
/// there twice.
Settings settings_of(const char* text) {
  Settings settings;
  std::istringstream words(text != nullptr ? text : "");
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error("options: \"" + word +
                  "\" is not an option; options are written name=value and separated by blanks");
    }
    if (!settings.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw Error("options: " + word.substr(0, equals) + " appears twice");
    }
  }
  return settings;
}

Contexts contexts_of(const topk_build_material& material, std::size_t dim) {
  c::require_values(material.contexts, material.context_count, "material.contexts");
  const std::size_t stride = material.context_stride != 0 ? material.context_stride : dim;
  if (stride < dim) {
    throw std::invalid_argument("material.context_stride is " + std::to_string(stride) +
                                "; the layer's dimension is " + std::to_string(dim));
  }
  return {material.contexts, material.context_count, dim, stride};
}

TrainingProgress progress_of(const topk_build_material& material) {
  if (material.progress == nullptr) return {};
  return [call = material.progress, user = material.progress_user](std::string_view step, double done) {
    if (call(user, std::string(step).c_str(), done) != 0) throw c::Stopped();
  };
}

std::string list_of_backends() {
  const Registry registry = Registry::standard();
  std::string text;
  for (const BackendDescription* const backend : registry.all()) {
    text += backend->name + (backend->wraps ? ":NAME" : "") + "\n    " + backend->summary + "\n";
    for (const OptionDescription& option : backend->options()) {
      const std::string& value = option.default_value;
      text += "    " + option.name + "=" + (value.empty() ? "(chosen)" : value) + "    " + option.help;
      text += '\n';
    }
  }
  return text;
}

}  // namespace

topk_status topk_build(const topk_layer* layer, const char* name, const char* options,
                       const topk_build_material* material, topk_backend** backend, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(backend, "backend");
    const SoftmaxLayer& built_for = c::required(layer, "layer").layer;
    const topk_build_material given = c::known(material, TOPK_BUILD_MATERIAL_INIT, "material");
    const c::ChosenExecutor executor(given.executor);
    const BuildMaterial views = {.layer = built_for,
                                 .contexts = contexts_of(given, built_for.dim()),
                                 .counts = {given.counts, given.counts != nullptr ? built_for.vocab() : 0},
                                 .executor = executor.get(),
                                 .progress = progress_of(given)};
    *backend =
        new topk_backend(Registry::standard().build(&c::required(name, "name"), views, settings_of(options)));
  });
}

topk_status topk_map_vocabulary(const topk_backend* over_rows, const int32_t* token_of_row, size_t rows,
                                size_t vocab, topk_backend** mapped, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(mapped, "mapped");
    const topk_backend& given = c::required(over_rows, "over_rows");
    c::require_values(token_of_row, rows, "token_of_row");
    *mapped = new topk_backend(MappedVocabulary::wrap(
        given.backend, std::vector<TokenId>(token_of_row, token_of_row + rows), vocab));
  });
}

size_t topk_list_backends(char* text, size_t text_size) {
  try {
    const std::string list = list_of_backends();
    if (text != nullptr && text_size != 0) {
      *std::copy_n(list.begin(), std::min(list.size(), text_size - 1), text) = '\0';
    }
    return list.size() + 1;
  } catch (...) {
    return 0;
  }
}
