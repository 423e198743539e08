#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the project and runs all its tests, on a machine where nothing is prepared. Arguments go to ctest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-deps.sh
cmake --preset dev
cmake --build --preset dev
ctest --preset dev "$@"
