# SPDX-License-Identifier: Apache-2.0
#
# Finds the parts the project stands on. An installed part is taken first; one that is missing is downloaded,
# its contents pinned by hash, in the release the project is tested with.
# FETCHCONTENT_TRY_FIND_PACKAGE_MODE, FETCHCONTENT_FULLY_DISCONNECTED and FETCHCONTENT_SOURCE_DIR_<NAME> apply.
include(FetchContent)

# Declares a part: the release that is downloaded, and its licence as SPDX names it. Before CMake 3.25, FetchContent knows
# nothing of installed parts and of system headers: topksoftmax_provide looks for the former.
function(topksoftmax_declare part version licence)
  cmake_parse_arguments(PARSE_ARGV 3 part "" "URL" "FIND_PACKAGE_ARGS")
  set(newer SYSTEM)
  set(find FIND_PACKAGE_ARGS ${part_FIND_PACKAGE_ARGS})
  if(CMAKE_VERSION VERSION_LESS 3.25)
    set(newer)
    set(find)
    set_property(GLOBAL PROPERTY TOPKSOFTMAX_FIND_${part} ${part_FIND_PACKAGE_ARGS})
  endif()
  FetchContent_Declare(${part} ${newer} URL ${part_URL} ${part_UNPARSED_ARGUMENTS} ${find})
  set_property(GLOBAL PROPERTY TOPKSOFTMAX_DOWNLOAD_OF_${part} ${version} ${part_URL})
  set_property(GLOBAL PROPERTY TOPKSOFTMAX_LICENCE_OF_${part} ${licence})
endfunction()

# Eigen and hnswlib are used as headers alone: SOURCE_SUBDIR names no folder, so their own CMake files, which
# would add their tests and compiler flags to this build, stay unread.
topksoftmax_declare(Eigen3 3.4.0 MPL-2.0
  URL https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2
  URL_HASH SHA256=b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626
  SOURCE_SUBDIR headers-only
  FIND_PACKAGE_ARGS 3.4 QUIET NO_MODULE)
topksoftmax_declare(hnswlib 0.6.2 Apache-2.0
  URL https://github.com/nmslib/hnswlib/archive/refs/tags/v0.6.2.tar.gz
  URL_HASH SHA256=19899f233f0361e1203a2b7e5143ed284f57c4e1501c8adc19f3bc341edb4100
  SOURCE_SUBDIR headers-only
  FIND_PACKAGE_ARGS QUIET MODULE)
topksoftmax_declare(hwy 1.0.3 Apache-2.0
  URL https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz
  URL_HASH SHA256=566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
  FIND_PACKAGE_ARGS 1.0.3 QUIET CONFIG)
topksoftmax_declare(nlohmann_json 3.11.2 MIT
  URL https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  URL_HASH SHA256=d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
  FIND_PACKAGE_ARGS 3 QUIET CONFIG)
topksoftmax_declare(CLI11 2.1.2 BSD-3-Clause
  URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.1.2.tar.gz
  URL_HASH SHA256=26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb
  FIND_PACKAGE_ARGS 2.1 QUIET CONFIG)
topksoftmax_declare(GTest 1.12.1 BSD-3-Clause
  URL https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
  URL_HASH SHA256=81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2
  FIND_PACKAGE_ARGS 1.12 QUIET)
topksoftmax_declare(benchmark 1.7.1 Apache-2.0
  URL https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz
  URL_HASH SHA256=6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7
  FIND_PACKAGE_ARGS 1.7 QUIET CONFIG)

# Makes a declared part available as the given target. A part that has to be built here becomes a static library
# without tests, tools or install rules of its own.
function(topksoftmax_provide part target)
  if(TARGET ${target})
    return()
  endif()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW) # option() and set(CACHE) keep to the variables below
  set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_INSTALL OFF)
  set(HWY_ENABLE_TESTS OFF)
  set(JSON_BuildTests OFF)
  set(JSON_Install OFF)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_WERROR OFF)
  get_property(find GLOBAL PROPERTY TOPKSOFTMAX_FIND_${part})
  if(find)
    find_package(${part} ${find})
  endif()
  if(NOT TARGET ${target})
    FetchContent_MakeAvailable(${part})
  endif()
  FetchContent_GetProperties(${part})
  string(TOLOWER ${part} name)
  if(${name}_SOURCE_DIR)
    get_property(download GLOBAL PROPERTY TOPKSOFTMAX_DOWNLOAD_OF_${part})
    list(GET download 0 version)
    list(GET download 1 url)
  else()
    set(version "${${part}_VERSION}")
    set(url "")
  endif()
  set_property(GLOBAL PROPERTY TOPKSOFTMAX_VERSION_OF_${part} "${version}")
  set_property(GLOBAL PROPERTY TOPKSOFTMAX_URL_OF_${part} "${url}")

  if(NOT TARGET ${target} AND part STREQUAL "hwy")
    add_library(hwy::hwy ALIAS hwy)
  elseif(NOT TARGET ${target})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} SYSTEM INTERFACE "${${name}_SOURCE_DIR}")
  endif()
endfunction()

# What the library itself needs; tests, tools and examples ask for theirs where they are built.
option(TOPKSOFTMAX_OPENMP "Take the threads of OpenMP by default, where it is found" ON)
if(TOPKSOFTMAX_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
endif()
if(TARGET OpenMP::OpenMP_CXX)
  set(TOPKSOFTMAX_THREADS OpenMP::OpenMP_CXX)
else()
  set(THREADS_PREFER_PTHREAD_FLAG OFF)
  find_package(Threads REQUIRED)
  set(TOPKSOFTMAX_THREADS Threads::Threads)
endif()
option(TOPKSOFTMAX_MPI "Offer the component MPI, a vocabulary over processes, where MPI is found" ON)
set(TOPKSOFTMAX_HAS_MPI OFF)
if(TOPKSOFTMAX_MPI AND NOT CMAKE_CROSSCOMPILING) # the wrapper compilers that tell of it are the host's
  set(MPI_CXX_SKIP_MPICXX ON) # its C++ interface, which MPI has dropped
  find_package(MPI COMPONENTS CXX)
  set(TOPKSOFTMAX_HAS_MPI ${MPI_CXX_FOUND})
endif()
topksoftmax_provide(Eigen3 Eigen3::Eigen)
topksoftmax_provide(hnswlib hnswlib::hnswlib)
topksoftmax_provide(hwy hwy::hwy)
topksoftmax_provide(nlohmann_json nlohmann_json::nlohmann_json)
