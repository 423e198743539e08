# SPDX-License-Identifier: Apache-2.0
#
# cmake -DWAY=install|find_package|pkg-config|add_subdirectory|FetchContent -DSHARED=ON|OFF -DSOURCE=… -DWORK=…
#       -DCXX=… -DLAUNCHER=… -P run.cmake
# Builds and runs the consumer; "install" lays the installed tree that find_package and pkg-config use.
cmake_minimum_required(VERSION 3.22)
include("${SOURCE}/tests/consumer/steps.cmake")
set(prefix "${WORK}/prefix-${SHARED}")
set(build "${WORK}/${WAY}-${SHARED}")
set(options "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" -DCMAKE_BUILD_TYPE=Debug)
if(SHARED) # who wants an archive need not say so
  list(APPEND options -DBUILD_SHARED_LIBS=ON)
endif()

if(WAY STREQUAL "install")
  # One of the two with absolute folders, the headers' outside of the prefix: some distributions lay them so.
  set(folders -DCMAKE_INSTALL_LIBDIR=lib)
  if(NOT SHARED)
    set(folders "-DCMAKE_INSTALL_LIBDIR=${prefix}/lib" "-DCMAKE_INSTALL_INCLUDEDIR=${WORK}/headers")
  endif()
  file(REMOVE_RECURSE "${prefix}" "${WORK}/headers")
  build_project("${SOURCE}" "${build}" install ${options} "-DCMAKE_INSTALL_PREFIX=${prefix}" ${folders}
    -DTOPKSOFTMAX_BUILD_TESTS=OFF -DTOPKSOFTMAX_BUILD_BENCH=OFF -DTOPKSOFTMAX_BUILD_EXAMPLES=OFF)
  # No flag of ours may reach a user.
  file(GLOB exported "${prefix}/lib/cmake/TopKSoftmax/*.cmake" "${prefix}/lib/pkgconfig/*.pc")
  if(NOT exported)
    message(FATAL_ERROR "nothing was exported to ${prefix}/lib")
  endif()
  foreach(name IN LISTS exported)
    file(READ "${name}" text)
    if(text MATCHES "-march|-mavx|fast-math|-Wall|-Werror|-Wextra")
      message(FATAL_ERROR "${name} exports a compiler flag: ${CMAKE_MATCH_0}")
    endif()
  endforeach()
  return()
endif()

if(WAY STREQUAL "pkg-config")
  set(package topksoftmax)
  if(NOT SHARED)
    list(APPEND package --static)
  endif()
  build_by_pkg_config("${build}/consumer" "${prefix}" "${package}" "${CXX}" -std=c++20
    "${SOURCE}/tests/consumer/main.cpp")
  # The file tells of both libraries, whichever is here: what an archive needs is for those alone who ask for that. (The
  # step above has told pkg-config where to look.)
  run(pkg-config --libs topksoftmax)
  set(libs "${output}")
  run(pkg-config --libs --static topksoftmax)
  if(libs MATCHES "-l(hwy|gomp|omp)" OR libs STREQUAL output)
    message(FATAL_ERROR "pkg-config links ${libs}and, with --static, ${output}")
  endif()
else()
  build_project("${SOURCE}/tests/consumer" "${build}" consumer ${options} "-DWAY=${WAY}" "-DLIBRARY_SOURCE=${SOURCE}"
    "-DCMAKE_PREFIX_PATH=${prefix}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
  file(STRINGS "${build}/compile_commands.json" commands REGEX "\"command\".*consumer")
  if(commands MATCHES "-march|-mavx|fast-math|-Wall|-Werror")
    message(FATAL_ERROR "a flag of ours reaches the consumer: ${CMAKE_MATCH_0}")
  endif()
endif()
run("${build}/consumer")
