// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace topksoftmax::bench {

/// Words with blanks between them, quoted where a shell would not read them as they are.
std::string shell_words(std::span<const std::string> words);

}  // namespace topksoftmax::bench
