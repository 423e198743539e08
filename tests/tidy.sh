#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy on the library's sources, and on the headers that they include. The preset tidy checks everything, in an
# hour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-deps.sh clang clang-tidy
cmake --preset tidy -DTOPKSOFTMAX_BUILD_TESTS=OFF -DTOPKSOFTMAX_BUILD_BENCH=OFF -DTOPKSOFTMAX_BUILD_EXAMPLES=OFF
run-clang-tidy -quiet -p build/tidy "/src/[^.]*\.cpp$"
