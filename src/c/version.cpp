// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/c/topksoftmax.h"

const char* topk_version() {
  return TOPKSOFTMAX_C_VERSION;
}
