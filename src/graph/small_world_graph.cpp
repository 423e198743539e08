// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/graph/small_world_graph-inl.hpp"
