// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/wta/wta_lsh-inl.hpp"
