// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/workspace-inl.hpp"
