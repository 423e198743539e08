// SPDX-License-Identifier: Apache-2.0
#include "harness/build_backend.hpp"

#include <string>
#include <string_view>

#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {

std::unique_ptr<TopKSoftmax> build_backend(const Choice& choice, const Head& head, Progress& progress) {
  const std::string& name = choice.backend->name;
  const std::string what = "building " + name;
  progress.show(what);
  try {
    return choice.backend->build(head, choice.settings, [&](std::string_view step, double done) {
      progress.show(what + ": " + std::string(step), done);
    });
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(name + ": ")) throw;
    throw Error(name + ": " + error.what());
  }
}

}  // namespace topksoftmax::bench
