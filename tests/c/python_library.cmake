# SPDX-License-Identifier: Apache-2.0
#
# cmake -DMODULE=… -DSONAME=… -P python_library.cmake
# The library that the Python module loads where none is named is the one that is built here, by the name that programs
# load it by.
cmake_minimum_required(VERSION 3.25)
file(STRINGS "${MODULE}" line REGEX "^LIBRARY = ")
if(NOT line MATCHES "^LIBRARY = \"([^\"]+)\"" OR NOT CMAKE_MATCH_1 STREQUAL SONAME)
  message(FATAL_ERROR "${MODULE} has ${line}, where the library is ${SONAME}")
endif()
