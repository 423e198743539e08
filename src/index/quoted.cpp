// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/index/quoted-inl.hpp"
