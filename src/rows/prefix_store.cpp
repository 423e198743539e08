// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/prefix_store-inl.hpp"
