// SPDX-License-Identifier: Apache-2.0
#include "harness/head.hpp"

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/head_file.hpp"

namespace topksoftmax::bench {

Head load_head(const std::filesystem::path& path) {
  const HeadFile file = HeadFile::open(path);
  return {.file = path.string(),
          .name = file.name(),
          .layer = file.layer(),
          .train = file.train_contexts(),
          .test = file.test_contexts(),
          .counts = file.counts()};
}

void require_test_contexts(const Head& head) {
  if (head.test.rows() > 0) return;
  throw Error(head.file + ": there are no contexts.test; the harness needs some to measure on");
}

}  // namespace topksoftmax::bench
