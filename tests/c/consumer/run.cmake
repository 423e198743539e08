# SPDX-License-Identifier: Apache-2.0
#
# cmake -DWAY=find_package|pkg-config -DPREFIX=… -DSOURCE=… -DWORK=… -DCC=… -P run.cmake
# Builds the C example against what is installed in PREFIX, and runs it.
cmake_minimum_required(VERSION 3.22)
include("${SOURCE}/tests/consumer/steps.cmake")

if(WAY STREQUAL "pkg-config")
  build_by_pkg_config("${WORK}/consumer" "${PREFIX}" topksoftmax-c "${CC}" -std=c99
    "${SOURCE}/examples/c/quickstart.c")
else()
  build_project("${CMAKE_CURRENT_LIST_DIR}" "${WORK}" consumer "-DCMAKE_C_COMPILER=${CC}"
    "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DSOURCE=${SOURCE}")
endif()
run("${WORK}/consumer" "${SOURCE}/examples/data/novels-lm.safetensors")
if(NOT output MATCHES "proven to be the exact top 5")
  message(FATAL_ERROR "${output}")
endif()
