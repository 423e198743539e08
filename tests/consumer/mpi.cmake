# SPDX-License-Identifier: Apache-2.0
#
# cmake -DSOURCE=… -DWORK=… -DCXX=… -DLAUNCHER=… -DHAS_MPI=ON|OFF -DMPI_RUN=… -P mpi.cmake
# The component MPI as users take it: a program on two ranks; and what those are told who ask for a component that is
# not there.
cmake_minimum_required(VERSION 3.25)
include("${SOURCE}/tests/consumer/steps.cmake")
set(project "${SOURCE}/tests/consumer/mpi")
set(options "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" -DCMAKE_BUILD_TYPE=Debug)

# Configures with components of what is installed in `prefix`, which must fail with a message that matches `expected`.
function(expect_refused prefix components expected)
  set(build "${WORK}/mpi-refused")
  file(REMOVE_RECURSE "${build}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${project}" -B "${build}" ${options} "-DCMAKE_PREFIX_PATH=${prefix}"
      "-DCOMPONENTS=${components}"
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(NOT failed OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "COMPONENTS ${components} is not refused as it should be:\n${output}")
  endif()
endfunction()

expect_refused("${WORK}/prefix-OFF" "MPI;nonsense"
  "has the components shared and static, one of them at a time, and c, MPI, builders, harness and conformance; asked for: MPI;nonsense")
if(HAS_MPI)
  # What is installed where no MPI is found lacks these.
  file(REMOVE_RECURSE "${WORK}/prefix-without-mpi")
  file(COPY "${WORK}/prefix-OFF/lib/cmake" DESTINATION "${WORK}/prefix-without-mpi/lib")
  file(REMOVE "${WORK}/prefix-without-mpi/lib/cmake/TopKSoftmax/TopKSoftmax-mpi-targets.cmake")
else()
  file(CREATE_LINK "${WORK}/prefix-OFF" "${WORK}/prefix-without-mpi" SYMBOLIC)
endif()
expect_refused("${WORK}/prefix-without-mpi" "MPI"
  "The component MPI of TopKSoftmax is not installed here: no MPI was found where it was built")
file(REMOVE_RECURSE "${WORK}/prefix-without-mpi")
if(NOT HAS_MPI)
  return()
endif()

foreach(shared IN ITEMS OFF ON)
  set(build "${WORK}/mpi-${shared}")
  build_project("${project}" "${build}" consumer ${options} "-DCMAKE_PREFIX_PATH=${WORK}/prefix-${shared}"
    -DCOMPONENTS=MPI -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
  file(STRINGS "${build}/compile_commands.json" commands REGEX "\"command\".*consumer")
  if(commands MATCHES "-march|-mavx|fast-math|-Wall|-Werror")
    message(FATAL_ERROR "a flag of ours reaches the consumer: ${CMAKE_MATCH_0}")
  endif()
  separate_arguments(mpi_run UNIX_COMMAND "${MPI_RUN}")
  run(${mpi_run} "${build}/consumer")
  if(NOT output MATCHES "2 ranks, token [0-9]+\n")
    message(FATAL_ERROR "the consumer on two ranks says:\n${output}")
  endif()
endforeach()
