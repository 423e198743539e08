// SPDX-License-Identifier: Apache-2.0
#include "c/guard.hpp"
#include "c/handles.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

using namespace topksoftmax;

topk_status topk_load(const char* path, const topk_layer* layer, topk_backend** backend, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(backend, "backend");
    *backend = new topk_backend(load_index(&c::required(path, "path"), c::required(layer, "layer").layer));
  });
}

topk_status topk_load_copy(const char* path, const topk_layer* layer, topk_backend** backend,
                           topk_error* error) {
  return c::guarded(error, [&] {
    c::required(backend, "backend");
    *backend = new topk_backend(load_index(&c::required(path, "path"), c::required(layer, "layer").layer,
                                           {.access = FileAccess::copied}));
  });
}

topk_status topk_save(const topk_backend* backend, const char* path, topk_error* error) {
  return c::guarded(
      error, [&] { save_index(*c::required(backend, "backend").backend, &c::required(path, "path")); });
}

topk_status topk_verify_layer(const char* path, const topk_layer* layer, topk_error* error) {
  return c::guarded(error,
                    [&] { verify_layer(&c::required(path, "path"), c::required(layer, "layer").layer); });
}

topk_status topk_verify_index(const char* path, topk_error* error) {
  return c::guarded(error, [&] { verify_index(&c::required(path, "path")); });
}

void topk_backend_free(topk_backend* backend) {
  delete backend;
}

const char* topk_backend_name(const topk_backend* backend) {
  return backend != nullptr ? backend->name.c_str() : nullptr;
}

size_t topk_backend_vocab(const topk_backend* backend) {
  return backend != nullptr ? backend->backend->vocab() : 0;
}

size_t topk_backend_dim(const topk_backend* backend) {
  return backend != nullptr ? backend->backend->layer().dim() : 0;
}

size_t topk_backend_index_bytes(const topk_backend* backend) {
  return backend != nullptr ? backend->backend->index_bytes() : 0;
}

int topk_backend_certifies(const topk_backend* backend) {
  return backend != nullptr && backend->backend->certifies() ? 1 : 0;
}

int topk_backend_log_z_error(const topk_backend* backend, double* median, double* p99) {
  if (backend == nullptr) return 0;
  const auto error = backend->backend->log_z_error();
  if (!error) return 0;
  if (median != nullptr) *median = error->median;
  if (p99 != nullptr) *p99 = error->p99;
  return 1;
}
