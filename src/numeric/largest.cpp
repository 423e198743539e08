// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/largest-inl.hpp"
