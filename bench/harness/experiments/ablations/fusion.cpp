// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"
#include "peers/native_eigen.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/kernels/kernels.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::array<std::size_t, 3> kBeams = {1, 5, 10};

/// Rows of products W·h that are searched in turn: few enough to stay in the second cache, where a product
/// that was just made lies.
constexpr std::size_t kRows = 8;

/// Algorithm 1 of the paper: five passes over one row of products, each as fast as its kernel.
void five_passes(const float* products, const float* bias, std::size_t vocab, float* p,
                 kernels::TopKHeap& heap) {
  eigen_add(products, bias, vocab, p);
  const float max = kernels::max(p, vocab);
  const double sum = kernels::sum_exp(p, vocab, max);
  kernels::exp(p, vocab, static_cast<float>(static_cast<double>(max) + std::log(sum)), p);
  kernels::select(p, nullptr, vocab, heap);
}

}  // namespace

void run_fusion_ablation(const AblationRequest& request, std::ostream& out) {
  const SoftmaxLayer& layer = request.head.layer;
  const std::size_t vocab = layer.vocab();
  const RowMajorMatrix& test = request.head.test;
  const std::size_t rows = std::min(kRows, static_cast<std::size_t>(test.rows()));
  kernels::Rows unbiased = layer.rows();
  unbiased.bias = nullptr;
  std::vector<float> products(rows * vocab);
  kernels::scan_batch(unbiased, test.data(), layer.dim(), rows, products.data());
  const Eigen::VectorXf bias = layer.biases();
  std::vector<float> p(vocab);
  std::vector<ScoredToken> tokens(kBeams.back());
  kernels::LogSumExp sum;

  Table table({"n-best", "five passes µs", "one pass µs", "speedup", "without log Z µs", "speedup"});
  for (const std::size_t beam : kBeams) {
    const auto each = [&](const auto& search) {
      return TimedWork([&, search](std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) {
          kernels::TopKHeap heap(tokens.data(), beam);
          search(products.data() + i % rows * vocab, heap);
        }
      });
    };
    const std::vector<TimedWork> works = {each([&](const float* row, kernels::TopKHeap& heap) {
                                            five_passes(row, bias.data(), vocab, p.data(), heap);
                                          }),
                                          each([&](const float* row, kernels::TopKHeap& heap) {
                                            sum = {};
                                            kernels::fused_select(row, bias.data(), vocab, heap, &sum);
                                          }),
                                          each([&](const float* row, kernels::TopKHeap& heap) {
                                            kernels::fused_select(row, bias.data(), vocab, heap, nullptr);
                                          })};
    request.progress.show("n-best " + std::to_string(beam));
    const PinnedThread pinned;
    const std::vector<Timing> timings =
        time_interleaved(works, request.measure.timed, {.rounds = request.measure.rounds});
    std::vector<std::string> cells = {std::to_string(beam)};
    cells.push_back(three_digits(1e6 * timings[0].seconds_per_item));
    for (std::size_t i = 1; i < timings.size(); ++i) {
      cells.push_back(three_digits(1e6 * timings[i].seconds_per_item));
      cells.push_back(three_digits(timings[0].seconds_per_item / timings[i].seconds_per_item));
    }
    table.add(std::move(cells));
  }
  table.print(out);
  out << "\nBias, softmax and search of one row of " << vocab
      << " products, with the same exponential on both sides. The paper's\nGPU: 4.3 at 1-best, 2.3 at "
         "5-best. "
         "Without log Z is its Algorithm 3: greedy search needs none.\n";
}

}  // namespace topksoftmax::bench
