#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures and draws the figures of the README: make.sh HEADS, a folder with novels, translation and code.safetensors.
# BENCH is the harness, built with -DTOPKSOFTMAX_BENCH_PEERS=ON. DATA keeps the measurements: those that are there are drawn
# as they are.
set -euo pipefail
heads=$(realpath -- "${1:?usage: make.sh HEADS}")
figures=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
bench=$(realpath -- "${BENCH:-"$figures/../../build/release/bench/topksoftmax"}")
data=${DATA:-$(mktemp -d)}
mkdir -p "$data"
cd "$data"

# Precision against speed: every system at the settings of its own trade-off, and other libraries.
systems=exact,fused,l2s,l2s-kmeans,fgd,svd,row-clusters,adaptive,greedy-mips,pca-mips,lsh-mips,wta-lsh,shortlist,quantized
systems+=,certified,peer:eigen,peer:openblas,peer:onednn,peer:onednn-int8,peer:faiss-flat,peer:faiss-ivf,peer:faiss-hnsw
systems+=,peer:hnswlib,peer:onednn-bf16
for head in novels translation; do
  [ -s "$head.json" ] && continue
  python3 "$figures/fewer_contexts.py" "$heads/$head.safetensors" head.safetensors 6000 500
  "$bench" measure --head head.safetensors --sweep --backends "$systems" --timed 100 --rounds 3 --json "$head.json"
done

# The same for a transformer's head, with all its contexts, and graphs of more links.
systems=fused,quantized,certified,l2s,fgd,svd,row-clusters,peer:hnswlib,peer:hnswlib-l2,peer:faiss-hnsw,peer:faiss-ivf
systems+=,peer:onednn-bf16,peer:onednn-int8
[ -s code.json ] || "$bench" measure --head "$heads/code.safetensors" --sweep --backends "$systems" --set peer:hnswlib.M=32 \
  peer:hnswlib.ef_construction=400 peer:hnswlib-l2.M=32 peer:hnswlib-l2.ef_construction=400 peer:faiss-hnsw.M=32 \
  --queries 500 --timed 100 --rounds 3 --json code.json

# Time against V: synthetic heads, where every system has its defaults.
sizes=()
for vocab in 1000 4000 16000 64000 256000; do
  sizes+=("vocabulary-$vocab.json")
  [ -s "vocabulary-$vocab.json" ] && continue
  "$bench" make-head --vocab "$vocab" --dim 256 --alpha 1 --train 4000 --test 500 --out head.safetensors
  "$bench" measure --head head.safetensors --backends fused,quantized,certified,l2s-kmeans,svd --queries 300 --timed 200 \
    --rounds 5 --json "vocabulary-$vocab.json"
done
rm -f head.safetensors

for theme in light dark; do
  "$bench" plot precision --json novels.json translation.json --theme "$theme" --out "$figures/precision-$theme.svg"
  "$bench" plot precision --json code.json --theme "$theme" --out "$figures/code-$theme.svg"
  "$bench" plot vocabulary --json "${sizes[@]}" --theme "$theme" --out "$figures/vocabulary-$theme.svg"
done
