// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/option_limits-inl.hpp"
