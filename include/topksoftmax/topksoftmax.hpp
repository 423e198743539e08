// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/screeners/fgd.hpp"
#include "topksoftmax/screeners/ippt.hpp"
#include "topksoftmax/screeners/l2s.hpp"
#include "topksoftmax/screeners/wta_lsh.hpp"
#include "topksoftmax/screeners/wta_lsh_each.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"
