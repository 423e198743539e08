// SPDX-License-Identifier: Apache-2.0
#define TOPKSOFTMAX_BUILDERS_HERE
#include <topksoftmax/certified/build.hpp>
