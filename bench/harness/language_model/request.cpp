// SPDX-License-Identifier: Apache-2.0
#include "harness/language_model/request.hpp"

#include <string>
#include <utility>

#include "topksoftmax/error.hpp"
#include "written_contexts.hpp"

namespace topksoftmax::bench {

std::shared_ptr<const TopKSoftmax> LanguageModelRequest::build(const Choice& choice) const {
  const std::string& name = choice.backend->name;
  progress.show("building " + name);
  try {
    return choice.backend->build(head, choice.settings, [this, &name](std::string_view step, double done) {
      progress.show("building " + name + ": " + std::string(step) + " " +
                    std::to_string(static_cast<int>(100.0 * done)) + " %");
    });
  } catch (const Error& error) {
    throw Error(name + ": " + error.what());
  }
}

Head language_model_head(const examples::LstmModel& model, Head head, Progress& progress) {
  if (head.train.rows() != 0) return head;
  constexpr Eigen::Index count = 60000;
  head.train = examples::write_contexts(model, count, [&progress](double done) {
    progress.show("letting the model write: " + std::to_string(static_cast<int>(100.0 * done)) + " %");
  });
  return head;
}

}  // namespace topksoftmax::bench
