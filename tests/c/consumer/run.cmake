# SPDX-License-Identifier: Apache-2.0
#
# cmake -DWAY=find_package|pkg-config -DPREFIX=… -DSOURCE=… -DWORK=… -DCC=… -P run.cmake
# Builds the C example against what is installed in PREFIX, and runs it.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(WAY STREQUAL "pkg-config")
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/lib/pkgconfig")
  run(pkg-config --cflags --libs topksoftmax-c)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run("${CC}" -std=c99 "${SOURCE}/examples/c/quickstart.c" ${flags} "-Wl,-rpath,${PREFIX}/lib" -o "${WORK}/consumer")
else()
  run("${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}" "-DCMAKE_C_COMPILER=${CC}"
    "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DSOURCE=${SOURCE}")
  run("${CMAKE_COMMAND}" --build "${WORK}")
endif()
run("${WORK}/consumer" "${SOURCE}/examples/data/novels-lm.safetensors")
if(NOT output MATCHES "proven to be the exact top 5")
  message(FATAL_ERROR "${output}")
endif()
