// SPDX-License-Identifier: Apache-2.0
#include "form.hpp"

int main() {
  const Answers compiled = answers_of_compiled();
  const Answers plain = answers_of_plain();
  const Answers native = answers_of_native();
  const bool equal = compiled.ids == plain.ids && compiled.logits == plain.logits &&
                     compiled.ids == native.ids && compiled.logits == native.logits;
  return !compiled.ids.empty() && equal ? 0 : 1;
}
