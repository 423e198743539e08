#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the kernels for 64-bit Arm and for IBM Z, which nothing else here does. The presets aarch64 and s390x run all
# tests there, in hours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-deps.sh g++-aarch64-linux-gnu g++-s390x-linux-gnu
headers=$(pkg-config --cflags-only-I eigen3)
for target in aarch64 s390x; do
  echo "Compiling the kernels for $target"
  # shellcheck disable=SC2086 # options
  "$target-linux-gnu-g++" -std=c++20 -O2 -Iinclude -Isrc ${headers//-I/-isystem } -c src/kernels/dispatch.cpp -o /dev/null
done
