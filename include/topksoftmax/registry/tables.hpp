// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/registry.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// "Which head?" in Markdown: what each backend answers, learns from, and when to take it. Backends of which
/// the same is to be said share a row.
inline std::string which_head_table(const Registry& registry) {
  std::vector<BackendAdvice> rows;
  for (const BackendDescription* const description : registry.all()) {
    const BackendAdvice& advice = description->advice;
    if (advice.names.empty()) continue;
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const BackendAdvice& row) {
      return row.answers == advice.answers && row.learns_from == advice.learns_from &&
             row.take_when == advice.take_when;
    });
    if (same != rows.end()) {
      same->names += ", " + advice.names;
    } else {
      rows.push_back(advice);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const BackendAdvice& a, const BackendAdvice& b) { return a.place < b.place; });
  std::string text = "| backend | answers | learns from | take it when |\n|---|---|---|---|\n";
  for (const BackendAdvice& row : rows) {
    text += "| " + row.names + " | " + row.answers + " | " + row.learns_from + " | " + row.take_when + " |\n";
  }
  return text;
}

/// The tensors of every kind of index, in Markdown: kind, tensor, type, shape, and what it is. A kind without
/// any has a row with its name alone. "wrapped.*" stands for another index within this one.
inline std::string index_tensor_table(const Registry& registry) {
  std::string text = "| kind | tensor | type | shape | what it is |\n|---|---|---|---|---|\n";
  std::vector<std::string> met;
  for (const BackendDescription* const description : registry.all()) {
    const std::string& kind = description->kind;
    if (!description->traits.has_index || std::find(met.begin(), met.end(), kind) != met.end()) continue;
    met.push_back(kind);
    if (description->tensors.empty()) text += "| " + kind + " | | | | |\n";
    for (const TensorDescription& tensor : description->tensors) {
      text += "| " + kind + " | " + tensor.name + " | " + tensor.type + " | " + tensor.shape + " | " +
              tensor.meaning + " |\n";
    }
  }
  return text;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
