# SPDX-License-Identifier: Apache-2.0
#
# cmake -DSOURCE=… -DWORK=… -DCXX=… -P reproducible.cmake
# Two clean builds of the library in different folders, at different times, make packages of the same bytes. No compiler
# cache takes part. With debug information, which names folders; hardly optimised, which is quicker.
cmake_minimum_required(VERSION 3.25)
include("${SOURCE}/tests/consumer/steps.cmake")
set(ENV{SOURCE_DATE_EPOCH} 1767225600)
set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "")
cmake_path(GET CMAKE_COMMAND PARENT_PATH programs)
find_program(CPACK cpack HINTS "${programs}" REQUIRED)

file(REMOVE_RECURSE "${WORK}/reproducible")
foreach(folder IN ITEMS one another/deeper)
  set(copy "${WORK}/reproducible/${folder}")
  foreach(name IN ITEMS CMakeLists.txt CMakePresets.json LICENSE README.md bench cmake examples include src tests)
    file(COPY "${SOURCE}/${name}" DESTINATION "${copy}")
  endforeach()
  foreach(command IN ITEMS "--preset;package;-DTOPKSOFTMAX_BUILD_BENCH=OFF;-DTOPKSOFTMAX_BUILD_C=OFF;-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g"
      "--build;--preset;package")
    execute_process(COMMAND "${CMAKE_COMMAND}" ${command} WORKING_DIRECTORY "${copy}"
      OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${output}")
    endif()
  endforeach()
  run("${CPACK}" --config "${copy}/build/package/CPackConfig.cmake" -B "${copy}/packages" -D CPACK_STRIP_FILES=OFF)
endforeach()

file(GLOB packages RELATIVE "${WORK}/reproducible/one/packages" "${WORK}/reproducible/one/packages/*.deb"
  "${WORK}/reproducible/one/packages/*.tar.gz")
if(NOT packages)
  message(FATAL_ERROR "cpack made no packages")
endif()
foreach(package IN LISTS packages)
  file(SHA256 "${WORK}/reproducible/one/packages/${package}" one)
  file(SHA256 "${WORK}/reproducible/another/deeper/packages/${package}" another)
  if(NOT one STREQUAL another)
    message(FATAL_ERROR "${package} differs between two builds: compare those in ${WORK}/reproducible")
  endif()
endforeach()
