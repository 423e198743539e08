// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/wta/cuckoo_table-inl.hpp"
