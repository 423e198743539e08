// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/int8_rows-inl.hpp"
