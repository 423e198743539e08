# SPDX-License-Identifier: Apache-2.0
#
# topksoftmax-builders: what builds and trains, compiled once for the tests, the benchmarks, the examples and the C
# interface of this project (TOPKSOFTMAX_BUILDERS_ELSEWHERE in topksoftmax/config.hpp). It is not installed: users
# include the headers, and may do the same.
set(builders_adaptive adaptive/build)
set(builders_certified certified/build)
set(builders_fgd fgd/build)
set(builders_l2s l2s/build)
set(builders_mips baselines/build_greedy_mips baselines/build_lsh_mips baselines/build_pca_mips)
set(builders_svd svd/build)
set(builders_others baselines/build_wta_lsh_each quantized/build shortlist/build wta/build)

set(builder_sources)
foreach(group adaptive certified fgd l2s mips svd others)
  set(text "#define TOPKSOFTMAX_BUILDERS_HERE\n")
  foreach(header IN LISTS builders_${group})
    string(APPEND text "#include \"topksoftmax/${header}.hpp\"\n")
  endforeach()
  set(source "${PROJECT_BINARY_DIR}/builders/${group}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}")
  list(APPEND builder_sources "${source}")
endforeach()
add_library(topksoftmax-builders STATIC EXCLUDE_FROM_ALL ${builder_sources})
set_target_properties(topksoftmax-builders PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(topksoftmax-builders INTERFACE TOPKSOFTMAX_BUILDERS_ELSEWHERE)
target_link_libraries(topksoftmax-builders
  PUBLIC TopKSoftmax::TopKSoftmax hnswlib::hnswlib
  PRIVATE topksoftmax-warnings ${TOPKSOFTMAX_THREADS})
