// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/transform-inl.hpp"
