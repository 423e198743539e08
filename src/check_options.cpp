// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/check_options-inl.hpp"
