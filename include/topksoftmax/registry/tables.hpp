// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/registry.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// "Which head?" in Markdown: what each backend answers, learns from, and when to take it, and its name in the
/// registry. Backends of which the same is to be said share a row.
inline std::string which_head_table(const Registry& registry) {
  struct Row {
    BackendAdvice advice;
    std::string names;
  };
  std::vector<Row> rows;
  for (const BackendDescription* const description : registry.all()) {
    const BackendAdvice& advice = description->advice;
    if (advice.names.empty()) continue;
    const std::string name = "`" + description->name + (description->wraps ? ":NAME`" : "`");
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.advice.answers == advice.answers && row.advice.learns_from == advice.learns_from &&
             row.advice.take_when == advice.take_when;
    });
    if (same != rows.end()) {
      same->advice.names += ", " + advice.names;
      same->names += ", " + name;
    } else {
      rows.push_back({advice, name});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.advice.place < b.advice.place; });
  std::string text = "| backend | in the tool | answers | learns from | take it when |\n|---|---|---|---|---|\n";
  for (const auto& [advice, names] : rows) {
    text += "| " + advice.names + " | " + names + " | " + advice.answers + " | " + advice.learns_from + " | " +
            advice.take_when + " |\n";
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
