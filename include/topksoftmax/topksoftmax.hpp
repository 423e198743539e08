// SPDX-License-Identifier: Apache-2.0
#pragma once

// What builds and what asks. Asked for by name are the builder of FGD's graph, which needs hnswlib
// (fgd/build.hpp), baselines/, distributed/, evaluation/, registry/, status.hpp, and models' files (io/).
#include "topksoftmax/adaptive/build.hpp"
#include "topksoftmax/ask.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/decoding/low_rank_log_prob.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/quantized/build.hpp"
#include "topksoftmax/row_clusters/build.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/svd/build.hpp"
#include "topksoftmax/wta/build.hpp"
