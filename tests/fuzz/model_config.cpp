// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/model_config.hpp"

#include <string>

#include "fuzz/attempt.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax::fuzz {

void model_config(Bytes input) {
  const MemoryFile memory(std::string(input.begin(), input.end()));
  attempt([&] {
    const ModelConfig config = read_model_config(memory.path());
    require(config.name.find('/') == std::string::npos, "a name is the last part of a path");
    bool allowed = false;
    attempt([&] {
      detail::check_transform(config.transform);
      allowed = true;
    });
    require(allowed, "a transform is one that a layer may have");
  });
}

}  // namespace topksoftmax::fuzz
