#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures and draws the figures of the README: make.sh HEADS, a folder with novels.safetensors and translation.safetensors.
# BENCH is the harness, built with -DTOPKSOFTMAX_BENCH_PEERS=ON. DATA keeps the measurements, which are drawn again if there.
set -euo pipefail
heads=$(realpath -- "${1:?usage: make.sh HEADS}")
figures=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
bench=$(realpath -- "${BENCH:-"$figures/../../build/release/bench/topksoftmax-bench"}")
data=${DATA:-$(mktemp -d)}
mkdir -p "$data"
cd "$data"

# Precision against speed: every system at the settings of its own trade-off, and other libraries.
for head in novels translation; do
  [ -s "$head.json" ] || "$bench" --head "$heads/$head.safetensors" --sweep --queries 4096 --json "$head.json"
done

# Time against V: synthetic heads, where every system has its defaults.
sizes=()
for vocab in 4000 16000 64000 256000; do
  sizes+=("vocabulary-$vocab.json")
  [ -s "vocabulary-$vocab.json" ] && continue
  "$bench" make-head --vocab "$vocab" --dim 256 --alpha 1 --out synthetic.safetensors
  "$bench" --head synthetic.safetensors --backends fused,quantized,certified,l2s-kmeans,fgd,svd,row-clusters \
    --queries 1000 --timed 500 --json "vocabulary-$vocab.json"
  rm synthetic.safetensors
done

for theme in light dark; do
  "$bench" plot precision --json novels.json translation.json --theme "$theme" --out "$figures/precision-$theme.svg"
  "$bench" plot vocabulary --json "${sizes[@]}" --theme "$theme" --out "$figures/vocabulary-$theme.svg"
done
