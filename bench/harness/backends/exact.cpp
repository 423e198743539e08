// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/exact.hpp"

#include "harness/backends.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax::bench {
namespace {

Backend exact_fp32(Backend backend) {
  backend.is_exact_fp32 = true;
  return backend;
}

}  // namespace

Backend exact() {
  return exact_fp32(make_backend<NoOptions>(
      "exact", "The full softmax step by step, the ground truth of every precision", {},
      [](const Head& head, NoOptions, const TrainingProgress&) { return Exact::make(head.layer); }));
}

Backend fused() {
  return exact_fp32(make_backend<NoOptions>(
      "fused", "The full softmax in one pass: bias, log-sum-exp and top-k fused", {},
      [](const Head& head, NoOptions, const TrainingProgress&) { return Fused::make(head.layer); }));
}

}  // namespace topksoftmax::bench
