// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace topksoftmax::bench {

/// OpenBLAS picks its kernels while the program loads, and a release older than the processor picks those of
/// the oldest one it knows, several times slower. Where that happened, this names it better ones and starts
/// the program again (argv: of main); OPENBLAS_CORETYPE, if set, is left as it is.
void choose_openblas_kernels(char** argv);

}  // namespace topksoftmax::bench
