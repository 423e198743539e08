// SPDX-License-Identifier: Apache-2.0
//
// What a user of the library would write; it fails if the library does not answer.
#include <topksoftmax/ask.hpp>
#include <topksoftmax/certified/build.hpp>

int main() {
  using namespace topksoftmax;
  const SoftmaxLayer layer = SoftmaxLayer::own(RowMajorMatrix::Identity(5, 5));
  const Eigen::VectorXf h = Eigen::VectorXf::LinSpaced(5, 1.0F, 5.0F);
  const TopK exact = Exact::make(layer)->query(h, {.k = 2});
  const TopK certified = Certified::build(layer)->query(h, {.k = 2});
  try {
    Exact::make(layer)->query(h, {.k = 0});
  } catch (const std::invalid_argument&) {
    try {
      SoftmaxLayer::own(RowMajorMatrix(0, 5));
    } catch (const Error&) {
      return exact.ids == certified.ids && exact.ids[0] == 4 ? 0 : 1;
    }
  }
  return 1;
}
