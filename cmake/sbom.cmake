# SPDX-License-Identifier: Apache-2.0
#
# topksoftmax.spdx.json in the build folder: what our binaries are linked with, and the headers whose code is in them, in
# the versions that were found, as SPDX 2.3. Its time is SOURCE_DATE_EPOCH where that is set.
set(sbom_packages)
set(sbom_relationships)

# The identifier of a package in the file.
function(sbom_id result name)
  string(REGEX REPLACE "[^A-Za-z0-9.]+" "-" id "${name}")
  set(${result} "SPDXRef-${id}" PARENT_SCOPE)
endfunction()

# Adds a package; what is not known is "".
function(sbom_add name version licence url)
  foreach(field version licence url)
    if(${field} STREQUAL "")
      set(${field} NOASSERTION)
    endif()
  endforeach()
  sbom_id(id "${name}")
  list(APPEND sbom_packages "{\"SPDXID\": \"${id}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\", \
\"licenseDeclared\": \"${licence}\", \"licenseConcluded\": \"NOASSERTION\", \"copyrightText\": \"NOASSERTION\", \
\"downloadLocation\": \"${url}\", \"filesAnalyzed\": false}")
  set(sbom_packages "${sbom_packages}" PARENT_SCOPE)
endfunction()

# Says what a package is to others: DESCRIBES, STATIC_LINK (a part of it), DYNAMIC_LINK (loaded by it).
function(sbom_relate name kind)
  sbom_id(from "${name}")
  foreach(other IN LISTS ARGN)
    sbom_id(to "${other}")
    list(APPEND sbom_relationships "{\"spdxElementId\": \"${from}\", \"relationshipType\": \"${kind}\", \
\"relatedSpdxElement\": \"${to}\"}")
  endforeach()
  set(sbom_relationships "${sbom_relationships}" PARENT_SCOPE)
endfunction()

set(sbom_parts Eigen3 hwy nlohmann_json)
set(sbom_inside Eigen3 nlohmann_json)
set(sbom_loaded)
if("stdc++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(sbom_loaded libstdc++)
elseif("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(sbom_loaded libc++)
endif()
get_target_property(hwy_type hwy::hwy TYPE)
get_target_property(hwy_is_imported hwy::hwy IMPORTED)
if(hwy_is_imported AND NOT hwy_type STREQUAL "STATIC_LIBRARY")
  list(APPEND sbom_loaded hwy)
else()
  list(APPEND sbom_inside hwy)
endif()
if(TARGET OpenMP::OpenMP_CXX)
  list(GET OpenMP_CXX_LIB_NAMES 0 openmp_library)
  list(APPEND sbom_loaded lib${openmp_library})
endif()
foreach(runtime IN LISTS sbom_loaded)
  if(runtime MATCHES "^lib(gomp|stdc\\+\\+)$" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    sbom_add("${runtime}" "${CMAKE_CXX_COMPILER_VERSION}" "GPL-3.0-or-later WITH GCC-exception-3.1" "")
  elseif(runtime MATCHES "^lib")
    sbom_add("${runtime}" "" "" "")
  endif()
endforeach()

set(sbom_binaries TopKSoftmax)
sbom_relate(TopKSoftmax STATIC_LINK ${sbom_inside})
sbom_relate(TopKSoftmax DYNAMIC_LINK ${sbom_loaded})
if(TOPKSOFTMAX_BUILD_C)
  list(APPEND sbom_binaries TopKSoftmax-C)
  list(APPEND sbom_parts hnswlib)
  sbom_relate(TopKSoftmax-C STATIC_LINK ${sbom_inside} hnswlib)
  sbom_relate(TopKSoftmax-C DYNAMIC_LINK ${sbom_loaded})
endif()
if(TARGET topksoftmax-tool)
  list(APPEND sbom_binaries TopKSoftmax-tools)
  list(APPEND sbom_parts hnswlib CLI11)
  if(BUILD_SHARED_LIBS)
    sbom_relate(TopKSoftmax-tools DYNAMIC_LINK TopKSoftmax)
  else()
    sbom_relate(TopKSoftmax-tools STATIC_LINK TopKSoftmax)
  endif()
  sbom_relate(TopKSoftmax-tools STATIC_LINK ${sbom_inside} hnswlib CLI11)
  sbom_relate(TopKSoftmax-tools DYNAMIC_LINK ${sbom_loaded})
  if(TOPKSOFTMAX_OPENBLAS_LIBRARY)
    file(STRINGS "${TOPKSOFTMAX_OPENBLAS_INCLUDE_DIR}/openblas_config.h" openblas_version REGEX "define OPENBLAS_VERSION ")
    string(REGEX MATCH "[0-9.]+" openblas_version "${openblas_version}")
    sbom_add(OpenBLAS "${openblas_version}" BSD-3-Clause "")
    sbom_relate(TopKSoftmax-tools DYNAMIC_LINK OpenBLAS)
  endif()
  if(TOPKSOFTMAX_LIBZIP_LIBRARY)
    set(libzip_version "")
    if(EXISTS "${TOPKSOFTMAX_LIBZIP_INCLUDE_DIR}/zipconf.h")
      file(STRINGS "${TOPKSOFTMAX_LIBZIP_INCLUDE_DIR}/zipconf.h" libzip_version REGEX "define LIBZIP_VERSION ")
      string(REGEX MATCH "[0-9.]+" libzip_version "${libzip_version}")
    endif()
    sbom_add(libzip "${libzip_version}" BSD-3-Clause "")
    sbom_relate(TopKSoftmax-tools DYNAMIC_LINK libzip)
  endif()
  if(TOPKSOFTMAX_HAS_MPI)
    sbom_add(MPI "" "" "")
    sbom_relate(TopKSoftmax-tools DYNAMIC_LINK MPI)
  endif()
  foreach(peer dnnl faiss)
    if(TOPKSOFTMAX_BENCH_PEERS AND ${peer}_DIR)
      sbom_add(${peer} "" "" "")
      sbom_relate(TopKSoftmax-tools DYNAMIC_LINK ${peer})
    endif()
  endforeach()
endif()

foreach(binary IN LISTS sbom_binaries)
  sbom_add(${binary} ${PROJECT_VERSION} Apache-2.0 "")
endforeach()
list(REMOVE_DUPLICATES sbom_parts)
foreach(part IN LISTS sbom_parts)
  get_property(version GLOBAL PROPERTY TOPKSOFTMAX_VERSION_OF_${part})
  get_property(licence GLOBAL PROPERTY TOPKSOFTMAX_LICENCE_OF_${part})
  get_property(url GLOBAL PROPERTY TOPKSOFTMAX_URL_OF_${part})
  sbom_add(${part} "${version}" "${licence}" "${url}")
endforeach()
sbom_relate(DOCUMENT DESCRIBES ${sbom_binaries})

string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
list(JOIN sbom_packages ",\n    " packages)
list(JOIN sbom_relationships ",\n    " relationships)
string(UUID id NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 TYPE SHA1 NAME "${created}${packages}${relationships}")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/topksoftmax.spdx.json" @ONLY CONTENT [[{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "topksoftmax-@PROJECT_VERSION@",
  "documentNamespace": "https://spdx.org/spdxdocs/topksoftmax-@PROJECT_VERSION@-@id@",
  "creationInfo": {"created": "@created@", "creators": ["Tool: CMake-@CMAKE_VERSION@"]},
  "packages": [
    @packages@
  ],
  "relationships": [
    @relationships@
  ]
}
]])
