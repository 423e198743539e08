// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/row_map-inl.hpp"
