// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/top_k_softmax_logits-inl.hpp"
