// SPDX-License-Identifier: Apache-2.0
#include "harness/backends/build_backend.hpp"

#include <string>
#include <string_view>

#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// A message without the name at its beginning, of the backend or of the one that this is a form of: "l2s" of
/// "l2s-kmeans" and of "certify:l2s".
std::string_view without_name(std::string_view message, std::string_view name) {
  const std::size_t end = message.find(": ");
  if (end == std::string_view::npos || name.find(message.substr(0, end)) == std::string_view::npos) {
    return message;
  }
  return message.substr(end + 2);
}

}  // namespace

BuildMaterial material_of(const Head& head) {
  return {.layer = head.layer, .contexts = Contexts::of(head.train), .counts = head.counts};
}

std::unique_ptr<TopKSoftmax> build_backend(const Choice& choice, const Head& head, Progress& progress) {
  const std::string& name = choice.backend->name;
  const std::string what = "building " + name;
  progress.show(what);
  BuildMaterial material = material_of(head);
  material.progress = [&](std::string_view step, double done) {
    progress.show(what + ": " + std::string(step), done);
  };
  try {
    return choice.backend->build(material, choice.settings);
  } catch (const Error& error) {
    throw Error(name + ": " + std::string(without_name(error.what(), name)));
  }
}

}  // namespace topksoftmax::bench
