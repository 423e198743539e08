// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/registry.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The main() of the tool topksoftmax for the backends of a registry, which may hold your own: measures them
/// against each other and against other libraries on a head, sweeps, plots, tunes, builds, inspects and asks
/// indexes, as the arguments say; --help tells what they may be. Prints to standard output, progress and
/// errors to standard error. Returns the program's exit code: 0, 1 for what failed, 2 for arguments that make
/// no sense. Throws nothing.
///
/// It is TopKSoftmax::harness in CMake (find_package(TopKSoftmax COMPONENTS harness)), needs POSIX, and may
/// restart the program at once, with the variable set that selects OpenBLAS's kernels.
int run_harness(int argc, char** argv, Registry registry);

}  // namespace TOPKSOFTMAX_NAMESPACE
