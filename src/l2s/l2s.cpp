// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/l2s-inl.hpp"
