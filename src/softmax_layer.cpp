// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/softmax_layer-inl.hpp"
