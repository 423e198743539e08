// SPDX-License-Identifier: Apache-2.0
#define TOPKSOFTMAX_BUILDERS_HERE
#include <topksoftmax/adaptive/build.hpp>
#include <topksoftmax/baselines/build_greedy_mips.hpp>
#include <topksoftmax/baselines/build_lsh_mips.hpp>
#include <topksoftmax/baselines/build_pca_mips.hpp>
#include <topksoftmax/baselines/build_wta_lsh_each.hpp>
#include <topksoftmax/fgd/build.hpp>
#include <topksoftmax/l2s/build.hpp>
#include <topksoftmax/quantized/build.hpp>
#include <topksoftmax/row_clusters/build.hpp>
#include <topksoftmax/shortlist/build.hpp>
#include <topksoftmax/svd/build.hpp>
#include <topksoftmax/wta/build.hpp>
