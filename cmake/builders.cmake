# SPDX-License-Identifier: Apache-2.0
#
# topksoftmax-builders: what builds and trains, compiled once for the tests, the benchmarks and the examples of this
# project, and for those who link TopKSoftmax::builders (TOPKSOFTMAX_BUILDERS_ELSEWHERE in topksoftmax/config.hpp). No
# archive of it is installed: it would bring Eigen's functions as others compile them.
if(TARGET topksoftmax-builders)
  return()
endif()
set(builders_adaptive adaptive/build)
# (L2S is labelled by Certified: in one file, what they share is compiled once.)
set(builders_certified certified/build l2s/build)
set(builders_fgd fgd/build)
set(builders_mips baselines/build_greedy_mips baselines/build_lsh_mips baselines/build_pca_mips)
set(builders_svd svd/build)
set(builders_others baselines/build_wta_lsh_each quantized/build row_clusters/build shortlist/build
  wta/build)

set(builder_groups adaptive certified mips svd others)
if(TARGET hnswlib::hnswlib)
  list(APPEND builder_groups fgd)
endif()

set(builder_sources)
foreach(group IN LISTS builder_groups)
  set(text "#define TOPKSOFTMAX_BUILDERS_HERE\n")
  foreach(header IN LISTS builders_${group})
    string(APPEND text "#include \"topksoftmax/${header}.hpp\"\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/topksoftmax-builders/${group}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}")
  list(APPEND builder_sources "${source}")
endforeach()
add_library(topksoftmax-builders STATIC EXCLUDE_FROM_ALL ${builder_sources})
add_library(TopKSoftmax::builders ALIAS topksoftmax-builders)
set_target_properties(topksoftmax-builders PROPERTIES POSITION_INDEPENDENT_CODE ON)
# Threads are the executor's. On Eigen's, the last bits of what is built would depend on their number; and all of a
# program must agree, since the linker keeps one of each of Eigen's functions.
target_compile_definitions(topksoftmax-builders
  PUBLIC EIGEN_DONT_PARALLELIZE
  INTERFACE TOPKSOFTMAX_BUILDERS_ELSEWHERE)
target_link_libraries(topksoftmax-builders
  PUBLIC TopKSoftmax::TopKSoftmax $<TARGET_NAME_IF_EXISTS:hnswlib::hnswlib>
  PRIVATE $<TARGET_NAME_IF_EXISTS:topksoftmax-warnings>)
