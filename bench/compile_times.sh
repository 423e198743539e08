#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Seconds of processor time that g++ -O2 takes for a file that includes a header and asks: the median of three. What it
# prints depends on the machine, and on what else that does. Arguments: flags for the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
eigen=$(pkg-config --cflags eigen3)

seconds() { # of compiling $folder/$1.cpp
  for _ in 1 2 3; do
    ( TIMEFORMAT=%U; time "${CXX:-g++}" -std=c++20 -O2 -Iinclude $eigen "${flags[@]}" -c "$folder/$1.cpp" -o "$folder/$1.o" ) 2>&1
  done | sort -n | sed -n 2p
}

flags=("$@")
printf '%-34s %s\n' "a file that" seconds
for backend in fused:Fused l2s/l2s:L2S certified/certified:Certified fgd/fgd:Fgd svd/svd_softmax:SvdSoftmax \
  adaptive/adaptive_softmax:AdaptiveSoftmax row_clusters/row_clusters:RowClusters \
  shortlist/shortlist:Shortlist quantized/quantized:Quantized wta/wta_lsh:WtaLsh; do
  header=${backend%%:*} class=${backend##*:}
  cat >"$folder/ask.cpp" <<EOF
#include "topksoftmax/$header.hpp"
#include "topksoftmax/io/index_file.hpp"
topksoftmax::TopK ask(const char* path, topksoftmax::SoftmaxLayer layer, std::span<const float> h) {
  topksoftmax::Workspace workspace;
  topksoftmax::TopK top;
  topksoftmax::load_index<topksoftmax::$class>(path, std::move(layer))->query(h, {.k = 5}, workspace, top);
  return top;
}
EOF
  printf '%-34s %s\n' "loads $class and asks" "$(seconds ask)"
done
cp examples/quickstart.cpp "$folder/quickstart.cpp"
printf '%-34s %s\n' "is the quickstart" "$(seconds quickstart)"
for umbrella in ask topksoftmax; do
  echo "#include \"topksoftmax/$umbrella.hpp\"" >"$folder/umbrella.cpp"
  printf '%-34s %s\n' "includes topksoftmax/$umbrella.hpp" "$(seconds umbrella)"
done
