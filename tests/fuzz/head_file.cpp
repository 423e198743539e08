// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/head_file.hpp"

#include <vector>

#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax::fuzz {
namespace {

TopK first_tokens(SoftmaxLayer layer) {
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(static_cast<Eigen::Index>(layer.dim()));
  const std::size_t vocab = layer.vocab();
  TopK answer = Fused::make(std::move(layer))->query(h, {.k = 3});
  require(answer.size() == std::min<std::size_t>(3, vocab), "a layer that is accepted can be asked");
  return answer;
}

}  // namespace

void head_file(Bytes input) {
  const MemoryFile memory(safetensors_bytes(input));
  try {
    const HeadFile head = HeadFile::open(memory.path());
    const auto dim = static_cast<Eigen::Index>(head.dim());
    const std::vector<std::int64_t> counts = head.counts();
    require(counts.empty() || counts.size() == head.vocab(), "there is a count for every token");
    const RowMajorMatrix train = head.train_contexts();
    require(train.cols() == dim && train.rows() == static_cast<Eigen::Index>(head.train_count()),
            "contexts.train is [N,d]");
    const RowMajorMatrix test = head.test_contexts();
    require(test.cols() == dim && test.rows() == static_cast<Eigen::Index>(head.test_count()),
            "contexts.test is [M,d]");
    const SoftmaxLayer layer = head.layer();
    const SoftmaxLayer in_float32 =
        SoftmaxLayer::own(layer.weights(), layer.biases()).with(layer.transform());
    const TopK stored = first_tokens(layer);
    const TopK converted = first_tokens(in_float32);
    const bool same_arithmetic = layer.weight_type() != WeightType::int8;
    require(!same_arithmetic || stored.ids == converted.ids, "a layer answers the same in every form");
  } catch (const Error&) {
  }
}

}  // namespace topksoftmax::fuzz
