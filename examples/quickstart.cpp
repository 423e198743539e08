// SPDX-License-Identifier: Apache-2.0
//
// The 25 lines to begin with: a softmax layer, a head that answers for it, the five most probable tokens.
#include <cstdio>
#include <topksoftmax/ask.hpp>
#include <topksoftmax/certified/build.hpp>

int main() {
  using namespace topksoftmax;

  // Your model's output layer, W [V×d] row-major and b [V], and contexts h that it has produced.
  srand(1);
  const RowMajorMatrix W = RowMajorMatrix::Random(20000, 128);
  const Eigen::VectorXf b = Eigen::VectorXf::Random(20000);
  const RowMajorMatrix contexts = RowMajorMatrix::Random(2000, 6) * RowMajorMatrix::Random(6, 128);

  const SoftmaxLayer layer = SoftmaxLayer::borrow(W, b);
  const auto head = Certified::build(layer, contexts);

  // One workspace a thread: a warm query allocates nothing.
  Workspace workspace;
  TopK top;
  head->query(contexts.row(0).transpose(), {.k = 5}, workspace, top);
  for (std::size_t i = 0; i < top.size(); ++i) {
    std::printf("token %5d   logit %7.3f   log-probability %.3f\n", top.ids[i],
                static_cast<double>(top.logits[i]), top.log_prob(i));
  }
  std::printf("%s; %.1f of %.1f MB read\n", top.certified ? "proven to be the exact top 5" : "approximate",
              static_cast<double>(top.work.bytes_read) / 1e6, static_cast<double>(layer.bytes()) / 1e6);
}
