// SPDX-License-Identifier: Apache-2.0
#include "screeners/int8_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

namespace topksoftmax {
namespace {

constexpr std::align_val_t kCacheLine{64};
/// Values of the widest vector that kernels load: rows of whole vectors have no tail.
constexpr std::size_t kWidestVector = 16;

std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace

void Int8Rows::Free::operator()(std::int8_t* p) const {
  ::operator delete(p, kCacheLine);
}

Int8Rows::Int8Rows(const SoftmaxLayer& layer) : scales_(layer.vocab()), rows_(layer.rows()) {
  rows_.type = WeightType::int8;
  rows_.dim = round_up(layer.dim(), kWidestVector);
  rows_.stride = round_up(layer.dim(), static_cast<std::size_t>(kCacheLine));
  weights_.reset(static_cast<std::int8_t*>(::operator new(layer.vocab() * rows_.stride, kCacheLine)));
  std::memset(weights_.get(), 0, layer.vocab() * rows_.stride);
  std::vector<float> row(layer.dim());
  for (std::size_t token = 0; token < layer.vocab(); ++token) {
    layer.copy_row(token, row.data());
    float largest = 0.0F;
    for (const float w : row) largest = std::max(largest, std::abs(w));
    scales_[token] = largest / 127.0F;
    if (largest == 0.0F) continue;
    std::int8_t* const out = weights_.get() + token * rows_.stride;
    std::transform(row.begin(), row.end(), out, [largest](float w) {
      return static_cast<std::int8_t>(std::lround(w / largest * 127.0F));
    });
  }
  rows_.data = weights_.get();
  rows_.scales = scales_.data();
}

std::size_t Int8Rows::bytes() const {
  return rows_.count * (rows_.stride + sizeof(float));
}

}  // namespace topksoftmax
