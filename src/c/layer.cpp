// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/model_layer.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

struct topk_head_file {
  HeadFile file;
};

namespace {

WeightType weight_type(int type) {
  constexpr std::array types = {WeightType::float32, WeightType::float16, WeightType::bfloat16,
                                WeightType::int8,    WeightType::q8_0,    WeightType::q6_k,
                                WeightType::q4_k};
  if (type >= 0 && static_cast<std::size_t>(type) < types.size())
    return types[static_cast<std::size_t>(type)];
  throw std::invalid_argument("weights.type is " + std::to_string(type) +
                              "; there are TOPK_FLOAT32, TOPK_FLOAT16, "
                              "TOPK_BFLOAT16, TOPK_INT8, TOPK_Q8_0, TOPK_Q6_K and TOPK_Q4_K");
}

void check_aligned(const void* data, std::size_t alignment, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment == 0) return;
  throw std::invalid_argument(std::string(name) + " does not lie at a multiple of " +
                              std::to_string(alignment) + " bytes, the size of its values");
}

kernels::Rows rows_of(const topk_weights& weights) {
  kernels::Rows rows;
  rows.data = weights.data;
  rows.scales = weights.scales;
  rows.bias = weights.bias;
  rows.count = weights.vocab;
  rows.dim = weights.dim;
  rows.stride = weights.stride != 0 ? weights.stride : weights.dim;
  rows.type = weight_type(weights.type);
  check_aligned(rows.data, weight_alignment(rows.type), "weights.data");
  check_aligned(rows.scales, sizeof(float), "weights.scales");
  check_aligned(rows.bias, sizeof(float), "weights.bias");
  return rows;
}

bool is_train(int which) {
  if (which == TOPK_TRAIN_CONTEXTS || which == TOPK_TEST_CONTEXTS) return which == TOPK_TRAIN_CONTEXTS;
  throw std::invalid_argument("which is " + std::to_string(which) +
                              "; there are TOPK_TRAIN_CONTEXTS and TOPK_TEST_CONTEXTS");
}

}  // namespace

topk_status topk_layer_borrow(const topk_weights* weights, topk_layer** layer, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(layer, "layer");
    c::required(weights, "weights");
    const kernels::Rows rows = rows_of(c::known(weights, TOPK_WEIGHTS_INIT, "weights"));
    const std::size_t biases = rows.bias != nullptr ? rows.count : 0;
    *layer = new topk_layer{SoftmaxLayer::borrow(rows, static_cast<std::ptrdiff_t>(biases))};
  });
}

void topk_layer_free(topk_layer* layer) {
  delete layer;
}

topk_status topk_layer_with_transform(const topk_layer* layer, float logit_scale, float soft_cap,
                                      topk_layer** transformed, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(transformed, "transformed");
    const LogitTransform transform = {.scale = logit_scale, .soft_cap = soft_cap};
    const topk_layer& given = c::required(layer, "layer");
    *transformed = new topk_layer{given.layer.with(transform), given.token_of_row};
  });
}

topk_status topk_layer_open(const char* path, topk_layer** layer, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(layer, "layer");
    ModelLayer model = open_model_layer(&c::required(path, "path"));
    *layer = new topk_layer{std::move(model.layer), std::move(model.token_of_row)};
  });
}

const int32_t* topk_layer_token_of_row(const topk_layer* layer) {
  return layer != nullptr && !layer->token_of_row.empty() ? layer->token_of_row.data() : nullptr;
}

size_t topk_layer_vocab(const topk_layer* layer) {
  return layer != nullptr ? layer->layer.vocab() : 0;
}
size_t topk_layer_dim(const topk_layer* layer) {
  return layer != nullptr ? layer->layer.dim() : 0;
}

topk_status topk_head_file_open(const char* path, topk_head_file** file, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(file, "file");
    *file = new topk_head_file{HeadFile::open(&c::required(path, "path"))};
  });
}

void topk_head_file_free(topk_head_file* file) {
  delete file;
}

topk_status topk_head_file_layer(const topk_head_file* file, topk_layer** layer, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(layer, "layer");
    *layer = new topk_layer{c::required(file, "file").file.layer()};
  });
}

size_t topk_head_file_context_count(const topk_head_file* file, int which) {
  if (file == nullptr) return 0;
  switch (which) {
    case TOPK_TRAIN_CONTEXTS:
      return file->file.train_count();
    case TOPK_TEST_CONTEXTS:
      return file->file.test_count();
    default:
      return 0;
  }
}

topk_status topk_head_file_read_contexts(const topk_head_file* file, int which, float* contexts,
                                         topk_error* error) {
  return c::guarded(error, [&] {
    const HeadFile& head = c::required(file, "file").file;
    const RowMajorMatrix values = is_train(which) ? head.train_contexts() : head.test_contexts();
    if (values.size() == 0) return;
    std::copy_n(values.data(), values.size(), &c::required(contexts, "contexts"));
  });
}

int topk_head_file_has_counts(const topk_head_file* file) {
  return file != nullptr && file->file.has_counts() ? 1 : 0;
}

topk_status topk_head_file_read_counts(const topk_head_file* file, int64_t* counts, topk_error* error) {
  return c::guarded(error, [&] {
    const HeadFile& head = c::required(file, "file").file;
    c::required(counts, "counts");
    if (!head.has_counts()) throw Error(head.name() + ": the head file has no counts");
    const std::vector<std::int64_t> values = head.counts();
    std::copy(values.begin(), values.end(), counts);
  });
}
