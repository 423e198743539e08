// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

/// What one form of the library answers: ids and logits of some queries, of each of some backends.
struct Answers {
  std::vector<int> ids;
  std::vector<float> logits;
};

Answers answers_of_compiled();
Answers answers_of_plain();
Answers answers_of_native();
