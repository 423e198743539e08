// SPDX-License-Identifier: Apache-2.0
//
// Compiled with -fno-exceptions and -fno-rtti: the headers that can be. error.hpp, which all others include,
// says so.
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/top_k.hpp"
