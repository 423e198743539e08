// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/estimated_candidates-inl.hpp"
