// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/ippt.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace topksoftmax {
namespace {

/// [x_i; b_i] of row `token`; `row` is scratch [d].
void copy_biased_row(const SoftmaxLayer& layer, std::size_t token, std::vector<float>& row, double* out) {
  layer.copy_row(token, row.data());
  std::copy(row.begin(), row.end(), out);
  out[row.size()] = layer.has_bias() ? static_cast<double>(layer.rows().bias[token]) : 0.0;
}

double squared_norm(const double* values, std::size_t count) {
  return std::inner_product(values, values + count, values, 0.0);
}

}  // namespace

Ippt::Ippt(SoftmaxLayer layer) : layer_(std::move(layer)) {
  std::vector<float> row(layer_.dim());
  std::vector<double> biased(row.size() + 1);
  double largest = 0.0;
  for (std::size_t token = 0; token < layer_.vocab(); ++token) {
    copy_biased_row(layer_, token, row, biased.data());
    largest = std::max(largest, squared_norm(biased.data(), biased.size()));
  }
  radius_ = std::sqrt(largest);
}

void Ippt::transform_row(std::size_t token, double* out) const {
  const std::size_t biased = layer_.dim() + 1;
  std::vector<float> row(layer_.dim());
  copy_biased_row(layer_, token, row, out);
  out[biased] = std::sqrt(std::max(0.0, radius_ * radius_ - squared_norm(out, biased)));
}

void Ippt::transform_context(const float* h, double* out) const {
  std::copy_n(h, layer_.dim(), out);
  out[layer_.dim()] = 1.0;
  out[layer_.dim() + 1] = 0.0;
}

}  // namespace topksoftmax
