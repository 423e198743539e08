// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/index/index_writer-inl.hpp"
