#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the language model example and runs it, on a machine where nothing is prepared. An argument names another
# language model file.
set -euo pipefail
if [[ $# -gt 1 || ${1:-} == -* ]]; then
  echo "usage: demo.sh [LANGUAGE MODEL FILE]" >&2
  exit 2
fi
model=${1:+$(realpath -- "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-deps.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}
[ -x build/release/examples/lstm_lm ] || echo "Building (once, a few minutes) …"
quietly cmake --preset release
quietly cmake --build --preset release --target lstm_lm
build/release/examples/lstm_lm ${model:+"$model"}
