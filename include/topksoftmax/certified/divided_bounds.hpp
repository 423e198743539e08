// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// Which numbers may reach a threshold, by their bounds, and what the others sum up to. The query's crew
// shares this: a bound is read by the thread that made it.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the layer's transform makes of bounds of products, in room [2·count]: these themselves where it
/// leaves them.
inline BoundsView logit_bounds(const LogitTransform& transform, const BoundsView& products, float* room) {
  if (transform.is_identity()) return products;
  float* const radii = room + products.count;
  kernels::transform_bounds(transform, products.estimates, products.radii, products.count, room, radii);
  return {room, radii, products.count};
}

/// Room for these in the workspace; null where the layer leaves products as they are.
inline float* logit_room(const BoundedQuery& bounded, std::size_t count) {
  if (bounded.layer.transform().is_identity()) return nullptr;
  return bounded.scratch().transformed.get<float>(2 * count);
}

/// What it makes of them, there.
inline BoundsView logit_bounds(const BoundedQuery& bounded, const BoundsView& products) {
  return logit_bounds(bounded.layer.transform(), products, logit_room(bounded, products.count));
}

/// Writes which products may have logits that reach the threshold to ids [count + kSlack], ascending, and
/// sums up the others where probabilities are asked for. `room` [2·count] is the logits'.
inline kernels::Partition divide_part(const BoundedQuery& bounded, const BoundsView& products,
                                      float threshold, float* room, TokenId* ids) {
  const LogitTransform& transform = bounded.layer.transform();
  if (!bounded.query.probabilities) {
    const float product = kernels::lowest_product(transform, threshold);
    return {kernels::reaching(products.estimates, products.radii, products.count, product, ids), {}};
  }
  const BoundsView logits = logit_bounds(transform, products, room);
  return kernels::partition(logits.estimates, logits.radii, logits.count, threshold, ids);
}

/// Bounds that are divided at a time. Sums of the others are added up in this order, whoever made them.
inline constexpr std::size_t kDividedAtOnce = 2048;

/// Bytes of an estimate and a radius.
inline constexpr std::size_t kBoundBytes = 2 * sizeof(float);

/// Ids that it takes to divide so many bounds: of each part a vector more than it has.
inline std::size_t divided_room(std::size_t count) {
  return count + (count / kDividedAtOnce + 1) * kernels::kSlack;
}

/// Calls divide(first, count, ids), a kernel's, for parts of `size` of so many bounds of `bytes` each, and
/// moves what it picks of all of them to the front of ids: [divided_room(count)] where parts are no smaller
/// than kDividedAtOnce.
template <class Divide>
kernels::Partition divide_in_parts(const BoundedQuery& bounded, std::size_t count, std::size_t size,
                                   std::size_t bytes, TokenId* ids, const Divide& divide) {
  if (count <= size) return divide(0, count, ids);
  const std::size_t stride = size + kernels::kSlack;
  const std::size_t parts = (count + size - 1) / size;
  auto* const divided = bounded.scratch().divided.get<kernels::Partition>(parts);
  share(bounded.workspace, parts, size * bytes, [&](std::size_t first, std::size_t some) {
    for (std::size_t part = first; part < first + some; ++part) {
      const std::size_t begin = part * size;
      divided[part] = divide(begin, std::min(size, count - begin), ids + part * stride);
    }
  });
  kernels::Partition all = divided[0];
  for (std::size_t part = 1; part < parts; ++part) {
    TokenId* const to = ids + all.reaching;
    const std::size_t found = divided[part].reaching;
    std::copy_n(ids + part * stride, found, to);
    const auto begin = static_cast<TokenId>(part * size);
    for (std::size_t i = 0; i < found; ++i) to[i] += begin;
    all.reaching += found;
    all.rest.low += divided[part].rest.low;
    all.rest.high += divided[part].rest.high;
  }
  return all;
}

/// divide_part() of all of them, in parts: ids [divided_room(count)].
inline kernels::Partition divide_bounds(const BoundedQuery& bounded, const BoundsView& products,
                                        float threshold, TokenId* ids) {
  float* const room = logit_room(bounded, products.count);
  const auto divide = [&](std::size_t first, std::size_t some, TokenId* to) {
    float* const own = room == nullptr ? nullptr : room + 2 * first;
    return divide_part(bounded, products.part(first, some), threshold, own, to);
  };
  return divide_in_parts(bounded, products.count, kDividedAtOnce, kBoundBytes, ids, divide);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
