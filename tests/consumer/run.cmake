# SPDX-License-Identifier: Apache-2.0
#
# cmake -DWAY=install|find_package|pkg-config|add_subdirectory|FetchContent -DSHARED=ON|OFF -DSOURCE=… -DWORK=…
#       -DCXX=… -P run.cmake
# Builds and runs the consumer; "install" lays the installed tree that find_package and pkg-config use.
cmake_minimum_required(VERSION 3.25)
set(prefix "${WORK}/prefix-${SHARED}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(configure "${CMAKE_COMMAND}" -G Ninja "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Debug)
set(build "${WORK}/${WAY}-${SHARED}")
file(REMOVE_RECURSE "${build}")

if(WAY STREQUAL "install")
  # One of the two with absolute folders, the headers' outside of the prefix: some distributions lay them so.
  set(folders -DCMAKE_INSTALL_LIBDIR=lib)
  if(NOT SHARED)
    set(folders "-DCMAKE_INSTALL_LIBDIR=${prefix}/lib" "-DCMAKE_INSTALL_INCLUDEDIR=${WORK}/headers")
  endif()
  file(REMOVE_RECURSE "${prefix}" "${WORK}/headers")
  run(${configure} -S "${SOURCE}" -B "${build}" -DBUILD_SHARED_LIBS=${SHARED} "-DCMAKE_INSTALL_PREFIX=${prefix}"
    ${folders} -DTOPKSOFTMAX_BUILD_TESTS=OFF -DTOPKSOFTMAX_BUILD_BENCH=OFF
    -DTOPKSOFTMAX_BUILD_EXAMPLES=OFF)
  run("${CMAKE_COMMAND}" --build "${build}" --target install)
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

if(WAY STREQUAL "forms")
  run(${configure} -S "${SOURCE}/tests/consumer/forms" -B "${build}" "-DCMAKE_PREFIX_PATH=${prefix}")
  run("${CMAKE_COMMAND}" --build "${build}")
  run("${build}/forms")
  return()
endif()

if(WAY STREQUAL "pkg-config")
  file(MAKE_DIRECTORY "${build}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/lib/pkgconfig")
  set(linkage)
  if(NOT SHARED)
    set(linkage --static)
  endif()
  run(pkg-config ${linkage} --cflags --libs topksoftmax)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run("${CXX}" -std=c++20 "${SOURCE}/tests/consumer/main.cpp" ${flags} "-Wl,-rpath,${prefix}/lib" -o
    "${build}/consumer")
else()
  run(${configure} -S "${SOURCE}/tests/consumer" -B "${build}" "-DWAY=${WAY}" "-DLIBRARY_SOURCE=${SOURCE}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DBUILD_SHARED_LIBS=${SHARED}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
  run("${CMAKE_COMMAND}" --build "${build}" --target consumer)
  file(STRINGS "${build}/compile_commands.json" commands REGEX "\"command\".*consumer")
  if(commands MATCHES "-march|-mavx|fast-math|-Wall|-Werror")
    message(FATAL_ERROR "a flag of ours reaches the consumer: ${CMAKE_MATCH_0}")
  endif()
endif()
run("${build}/consumer")
