# SPDX-License-Identifier: Apache-2.0
#
# Compiles everything that follows so that libFuzzer sees which code its inputs reach, and builds the fuzz targets
# (TOPKSOFTMAX_FUZZ; preset fuzz).
option(TOPKSOFTMAX_FUZZ "Build the fuzz targets, with Clang's libFuzzer" OFF)
if(NOT TOPKSOFTMAX_FUZZ)
  return()
endif()

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "TOPKSOFTMAX_FUZZ needs Clang, the compiler is ${CMAKE_CXX_COMPILER_ID}")
endif()
add_compile_options(-fsanitize=fuzzer-no-link)
