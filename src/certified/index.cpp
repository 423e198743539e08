// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/index-inl.hpp"
