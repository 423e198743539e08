// SPDX-License-Identifier: Apache-2.0
#include "harness/head.hpp"

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/head_file.hpp"

namespace topksoftmax::bench {

Head load_head(const std::filesystem::path& path) {
  const HeadFile file = HeadFile::open(path);
  if (file.test_count() == 0) {
    throw Error(path.string() + ": there are no contexts.test; the harness needs some to measure on");
  }
  return {.file = path.string(),
          .name = file.name(),
          .layer = file.layer(),
          .train = file.train_contexts(),
          .test = file.test_contexts(),
          .counts = file.counts()};
}

}  // namespace topksoftmax::bench
