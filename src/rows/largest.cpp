// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/largest-inl.hpp"
