// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fgd/int8_rows-inl.hpp"
