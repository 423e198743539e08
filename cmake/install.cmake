# SPDX-License-Identifier: Apache-2.0
#
# Install rules. A static and a shared build may be installed to one prefix: each brings its own targets file, and
# the package picks one. Components: runtime, what programs load; tools; development, all else.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

get_target_property(library_type TopKSoftmax TYPE)
if(library_type STREQUAL "SHARED_LIBRARY")
  set(linkage shared)
else()
  set(linkage static)
endif()
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/TopKSoftmax")

# The exported targets take the folder of a file set for one below the prefix, even where it is absolute.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}"
  OUTPUT_VARIABLE header_folder)
set(library_components LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
# Before CMake 3.23 there are no file sets; who finds what newer ones have installed needs the folder too.
set(headers INCLUDES DESTINATION "${header_folder}")
set(kernel_bodies)
if(CMAKE_VERSION VERSION_LESS 3.23)
  install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  list(PREPEND headers FILE_SET HEADERS DESTINATION "${header_folder}")
  set(kernel_bodies FILE_SET kernel_bodies DESTINATION "${header_folder}")
endif()
install(TARGETS TopKSoftmax EXPORT TopKSoftmax-${linkage} ${library_components} ${kernel_bodies} ${headers})
install(EXPORT TopKSoftmax-${linkage} DESTINATION "${package_folder}" NAMESPACE TopKSoftmax::
  FILE TopKSoftmax-${linkage}-targets.cmake)
get_target_property(hwy_is_imported hwy::hwy IMPORTED)
if(hwy_is_imported) # headers alone stand on Highway's, which are installed then
  install(TARGETS TopKSoftmax_header_only EXPORT TopKSoftmax-header_only ${kernel_bodies} ${headers})
  install(EXPORT TopKSoftmax-header_only DESTINATION "${package_folder}" NAMESPACE TopKSoftmax::
    FILE TopKSoftmax-header_only-targets.cmake)
endif()
if(TOPKSOFTMAX_HAS_MPI)
  install(TARGETS TopKSoftmax_mpi EXPORT TopKSoftmax-mpi ${headers})
  install(EXPORT TopKSoftmax-mpi DESTINATION "${package_folder}" NAMESPACE TopKSoftmax::
    FILE TopKSoftmax-mpi-targets.cmake)
endif()
if(TOPKSOFTMAX_BUILD_C) # stands alone, and in an export of its own
  install(TARGETS TopKSoftmax_c EXPORT TopKSoftmax-c ${library_components} ${headers})
  install(EXPORT TopKSoftmax-c DESTINATION "${package_folder}" NAMESPACE TopKSoftmax::
    FILE TopKSoftmax-c-targets.cmake)
endif()

# The harness and the conformance suite are compiled with the program that is linked with them: an archive of theirs
# would bring Eigen's functions as they are without that program's flags. What they need is laid as it lies here.
set(sources_folder "${CMAKE_INSTALL_DATADIR}/topksoftmax")
install(DIRECTORY bench/bounds bench/harness bench/peers DESTINATION "${sources_folder}/bench")
install(FILES bench/harness.cmake DESTINATION "${sources_folder}/bench")
install(DIRECTORY examples/ DESTINATION "${sources_folder}/examples" FILES_MATCHING PATTERN "*.hpp")
install(DIRECTORY tests/conformance tests/support DESTINATION "${sources_folder}/tests"
  PATTERN standard_suite.cpp EXCLUDE)
install(FILES cmake/builders.cmake cmake/Findhnswlib.cmake DESTINATION "${package_folder}")

if(TARGET OpenMP::OpenMP_CXX)
  set(static_dependencies "find_dependency(OpenMP COMPONENTS CXX)")
else()
  set(static_dependencies "find_dependency(Threads)")
endif()
if(hwy_is_imported)
  string(APPEND static_dependencies "\n  find_dependency(hwy CONFIG)")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/TopKSoftmaxConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/TopKSoftmaxConfig.cmake" INSTALL_DESTINATION "${package_folder}"
  PATH_VARS sources_folder NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TopKSoftmaxConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion) # before 1.0 a minor release may break the interface
install(FILES "${PROJECT_BINARY_DIR}/TopKSoftmaxConfig.cmake"
  "${PROJECT_BINARY_DIR}/TopKSoftmaxConfigVersion.cmake" DESTINATION "${package_folder}")

# What an archive needs, for pkg-config --static. Static and shared builds both say it, since the last one to be installed
# to a prefix writes the file. Highway is no Requires.private: who takes the shared library needs no libhwy.pc.
set(pkg_config_private "")
function(add_to_archive name file)
  cmake_path(GET file PARENT_PATH folder)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(APPEND pkg_config_private " -L${folder}")
  endif()
  set(pkg_config_private "${pkg_config_private} -l${name}" PARENT_SCOPE)
endfunction()
if(hwy_is_imported)
  get_target_property(hwy_library hwy::hwy LOCATION)
  add_to_archive(hwy "${hwy_library}")
endif()
# pkg-config knows nothing of compilers, so the OpenMP runtime is named that the library was built for.
foreach(name IN LISTS OpenMP_CXX_LIB_NAMES)
  add_to_archive(${name} "${OpenMP_${name}_LIBRARY}")
endforeach()
# The C++ library, whichever that is, and the mathematics; a C compiler that links adds the rest itself.
set(runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER runtime INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
list(REMOVE_DUPLICATES runtime)
foreach(name IN LISTS runtime)
  string(APPEND pkg_config_private " -l${name}")
endforeach()

# Folders within the prefix move with it; others, which may be given as absolute paths, stay where they are.
set(pkg_config_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}" NORMALIZE pkg_config_moves)
if(pkg_config_moves)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig"
    OUTPUT_VARIABLE pkg_config_prefix)
  string(PREPEND pkg_config_prefix "\${pcfiledir}/")
else()
  set(pkg_config_prefix "${CMAKE_INSTALL_PREFIX}")
endif()
foreach(name libdir includedir)
  string(TOUPPER "${name}" upper)
  set(pkg_config_${name} "${CMAKE_INSTALL_FULL_${upper}}")
  cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${pkg_config_${name}}" NORMALIZE moves)
  if(moves)
    cmake_path(RELATIVE_PATH pkg_config_${name} BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
    string(PREPEND pkg_config_${name} "\${prefix}/")
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/topksoftmax.pc.in" "${PROJECT_BINARY_DIR}/topksoftmax.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/topksoftmax.pc" DESTINATION "${pkg_config_folder}")
if(TOPKSOFTMAX_BUILD_C)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/topksoftmax-c.pc.in" "${PROJECT_BINARY_DIR}/topksoftmax-c.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/topksoftmax-c.pc" DESTINATION "${pkg_config_folder}")
endif()

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_BINARY_DIR}/topksoftmax.spdx.json"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
