// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/parallel/for_each_part-inl.hpp"
