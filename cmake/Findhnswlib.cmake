# SPDX-License-Identifier: Apache-2.0
#[=======================================================================[.rst:
Findhnswlib
-----------

Finds hnswlib where it is installed as headers only, without a CMake package.
An installed CMake package of hnswlib is preferred.

``hnswlib::hnswlib``
  The headers, included as ``<hnswlib/hnswlib.h>``.
``hnswlib_FOUND``
  True if they were found.
#]=======================================================================]
find_package(hnswlib CONFIG QUIET)
if(TARGET hnswlib::hnswlib)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(hnswlib CONFIG_MODE)
  return()
endif()

find_path(hnswlib_INCLUDE_DIR hnswlib/hnswlib.h DOC "The folder that holds hnswlib/hnswlib.h")
mark_as_advanced(hnswlib_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(hnswlib REQUIRED_VARS hnswlib_INCLUDE_DIR)
if(hnswlib_FOUND)
  add_library(hnswlib::hnswlib INTERFACE IMPORTED)
  set_target_properties(hnswlib::hnswlib PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${hnswlib_INCLUDE_DIR}")
endif()
