# SPDX-License-Identifier: Apache-2.0
#
# Compiles everything that follows with the sanitizers named in TOPKSOFTMAX_SANITIZE ("address,undefined" or
# "thread"), and gives CTest the environment that the tests need under them.
set(TOPKSOFTMAX_SANITIZE "" CACHE STRING "Sanitizers to compile with: address,undefined, or thread")
if(NOT TOPKSOFTMAX_SANITIZE)
  return()
endif()

add_compile_options(-fsanitize=${TOPKSOFTMAX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
add_link_options(-fsanitize=${TOPKSOFTMAX_SANITIZE})
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  # C programs that use the C interface: what its C++ parts need of the runtime is not linked otherwise.
  add_link_options($<$<LINK_LANGUAGE:C>:-fsanitize-link-c++-runtime>)
  string(APPEND CMAKE_C_STANDARD_LIBRARIES " -lstdc++")
endif()
add_compile_definitions(TOPKSOFTMAX_SANITIZED) # tests with very many cases try fewer

if(TOPKSOFTMAX_SANITIZE STREQUAL "thread")
  # hnswlib's builder locks row after row, in no order, on one thread: the detector of deadlocks takes that for one,
  # and minutes to find out.
  set(environment "set(ENV{TSAN_OPTIONS} ignore_noninstrumented_modules=1:detect_deadlocks=0)\n")
  if(TARGET OpenMP::OpenMP_CXX)
    # ThreadSanitizer cannot see the synchronisation inside an OpenMP runtime that is not itself instrumented.
    # LLVM's tells it through the Archer tool; GCC's has no such tool, and every parallel loop looks like a race.
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "TOPKSOFTMAX_SANITIZE=thread with OpenMP needs Clang and its OpenMP runtime, "
        "the compiler is ${CMAKE_CXX_COMPILER_ID}")
    endif()
    file(REAL_PATH "${OpenMP_omp_LIBRARY}" openmp_library)
    cmake_path(GET openmp_library PARENT_PATH openmp_folder)
    find_library(TOPKSOFTMAX_ARCHER archer HINTS "${openmp_folder}" REQUIRED
      DOC "LLVM's Archer, which tells ThreadSanitizer about OpenMP")
    string(APPEND environment "set(ENV{OMP_TOOL_LIBRARIES} [==[${TOPKSOFTMAX_ARCHER}]==])\n")
  endif()
else()
  # LLVM's OpenMP runtime keeps its threads, and what they hold, until the process ends.
  file(WRITE "${PROJECT_BINARY_DIR}/leaks-of-others.supp" "leak:libomp\n")
  set(environment "set(ENV{UBSAN_OPTIONS} print_stacktrace=1)\n"
    "set(ENV{LSAN_OPTIONS} [==[print_suppressions=0:suppressions=${PROJECT_BINARY_DIR}/leaks-of-others.supp]==])\n")
endif()
file(WRITE "${PROJECT_BINARY_DIR}/test-environment.cmake" ${environment})
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${PROJECT_BINARY_DIR}/test-environment.cmake")
