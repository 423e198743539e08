// SPDX-License-Identifier: Apache-2.0
#pragma once

// All that a program needs which asks: layers, every backend's index, queries, decoding. It compiles in
// seconds. What builds and trains is in each system's build.hpp, and in topksoftmax.hpp.
#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/batching.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/penalties.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/decoding/speculative.hpp"
#include "topksoftmax/decoding/subset.hpp"
#include "topksoftmax/decoding/token_cursor.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fgd/fgd.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/quantized/quantized.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

#if !defined(TOPKSOFTMAX_HEADER_ONLY)  // files are the compiled library's
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#endif
