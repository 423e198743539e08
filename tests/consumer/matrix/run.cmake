# SPDX-License-Identifier: Apache-2.0
#
# cmake -DPROGRAMS=all|forms -DSOURCE=… -DWORK=… -DCXX=… -DLAUNCHER=… -DHNSWLIB=… -P run.cmake
# Builds every program of this folder against what ../run.cmake has installed in WORK, and lets ctest compare their
# answers. "forms" then adds those that hold both forms of the library.
cmake_minimum_required(VERSION 3.25)
include("${SOURCE}/tests/consumer/steps.cmake")
set(build "${WORK}/matrix")
set(compare "${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error)
set(options "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")

if(PROGRAMS STREQUAL "forms")
  run("${CMAKE_COMMAND}" --build "${build}" --target forms)
  run(${compare} --label-regex forms)
else()
  # The library once more, where the sanitizer sees into it.
  build_project("${SOURCE}" "${WORK}/sanitized" TopKSoftmax ${options} -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DTOPKSOFTMAX_SANITIZE=address -DBUILD_SHARED_LIBS=OFF -DTOPKSOFTMAX_BUILD_C=OFF
    -DTOPKSOFTMAX_BUILD_TESTS=OFF -DTOPKSOFTMAX_BUILD_BENCH=OFF -DTOPKSOFTMAX_BUILD_EXAMPLES=OFF
    -DTOPKSOFTMAX_INSTALL=OFF)
  build_project("${CMAKE_CURRENT_LIST_DIR}" "${build}" all ${options} "-DCMAKE_PREFIX_PATH=${WORK}/prefix-OFF"
    "-DSHARED=${WORK}/prefix-ON/lib" "-DSANITIZED=${WORK}/sanitized/src" "-DHNSWLIB=${HNSWLIB}")
  run(${compare} --label-exclude forms)
endif()
message(STATUS "${output}")
