// SPDX-License-Identifier: Apache-2.0
//
// Compiled with -fno-rtti, as some engines are: headers alone need no run-time types.
#include "topksoftmax/ask.hpp"
