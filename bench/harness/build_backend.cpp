// SPDX-License-Identifier: Apache-2.0
#include "harness/build_backend.hpp"

#include <string>
#include <string_view>

#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// A message without the name at its beginning, of the backend or of the one that this is a form of: "l2s" of
/// "l2s-kmeans" and of "certify:l2s".
std::string_view without_name(std::string_view message, std::string_view name) {
  for (const Backend& backend : backends()) {
    const std::string prefix = backend.name + ": ";
    if (name.find(backend.name) != std::string_view::npos && message.starts_with(prefix)) {
      return message.substr(prefix.size());
    }
  }
  return message;
}

}  // namespace

std::unique_ptr<TopKSoftmax> build_backend(const Choice& choice, const Head& head, Progress& progress) {
  const std::string& name = choice.backend->name;
  const std::string what = "building " + name;
  progress.show(what);
  try {
    return choice.backend->build(head, choice.settings, [&](std::string_view step, double done) {
      progress.show(what + ": " + std::string(step), done);
    });
  } catch (const Error& error) {
    throw Error(name + ": " + std::string(without_name(error.what(), name)));
  }
}

}  // namespace topksoftmax::bench
