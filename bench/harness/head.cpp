// SPDX-License-Identifier: Apache-2.0
#include "harness/head.hpp"

#include <cmath>

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

void check_finite(const std::filesystem::path& file, const std::string& tensor,
                  const RowMajorMatrix& values) {
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    for (Eigen::Index column = 0; column < values.cols(); ++column) {
      if (std::isfinite(values(row, column))) continue;
      throw Error(file.string() + ": " + tensor + "[" + std::to_string(row) + ", " + std::to_string(column) +
                  "] is " + std::to_string(values(row, column)) + "; it must be finite");
    }
  }
}

void require_test_contexts(const Head& head) {
  if (head.test.rows() == 0) {
    throw Error(head.file + ": there are no contexts.test; the harness needs some to measure on");
  }
  check_finite(head.file, "contexts.test", head.test);
}

}  // namespace topksoftmax::bench
