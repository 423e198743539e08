// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/estimated_candidates-inl.hpp"
