# SPDX-License-Identifier: Apache-2.0
#
# TopKSoftmax::harness: the harness of the tool topksoftmax as a library, compiled where it is linked. Read where it lies,
# here and where it is installed; it takes topksoftmax-builders, and the examples' language model from the folder
# beside its own.
include(CheckCXXCompilerFlag)
set(topksoftmax_bench "${CMAKE_CURRENT_LIST_DIR}")
option(TOPKSOFTMAX_BENCH_PEERS "Build the harness with rows for oneDNN and faiss, where they are found" OFF)

# Eigen and hnswlib are at their best when compiled for the very machine they run on. Each in a library of its own,
# because the same templates are in the program too, compiled for any machine, and the linker keeps one of each.
option(TOPKSOFTMAX_BENCH_NATIVE "Compile the harness's Eigen and hnswlib for this very machine" ON)
if(TOPKSOFTMAX_BENCH_NATIVE)
  check_cxx_compiler_flag(-march=native TOPKSOFTMAX_HAS_MARCH_NATIVE)
endif()
function(topksoftmax_add_native_peer name)
  add_library(topksoftmax-native-${name} SHARED "${topksoftmax_bench}/peers/native_${name}.cpp")
  set_target_properties(topksoftmax-native-${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(topksoftmax-native-${name} PRIVATE cxx_std_20)
  target_include_directories(topksoftmax-native-${name} PRIVATE "${topksoftmax_bench}")
  target_link_libraries(topksoftmax-native-${name} PRIVATE ${ARGN} $<TARGET_NAME_IF_EXISTS:topksoftmax-warnings>)
  if(TOPKSOFTMAX_SANITIZE)
    # What they do is not ours to judge: hnswlib reads four bytes beyond its lists, to prefetch what they name.
    target_compile_options(topksoftmax-native-${name} PRIVATE -fno-sanitize=all)
  endif()
  if(TOPKSOFTMAX_BENCH_NATIVE AND TOPKSOFTMAX_HAS_MARCH_NATIVE)
    # GCC 12 takes the undefined lanes of its own AVX-512 intrinsics for a mistake (GCC bug 105593).
    target_compile_options(topksoftmax-native-${name} PRIVATE -O3 -march=native
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()
topksoftmax_add_native_peer(eigen Eigen3::Eigen)
topksoftmax_add_native_peer(hnswlib hnswlib::hnswlib)

file(GLOB_RECURSE harness_sources CONFIGURE_DEPENDS
  "${topksoftmax_bench}/bounds/*.cpp" "${topksoftmax_bench}/harness/*.cpp")
add_library(topksoftmax-harness STATIC EXCLUDE_FROM_ALL ${harness_sources}
  "${topksoftmax_bench}/peers/eigen.cpp" "${topksoftmax_bench}/peers/hnswlib.cpp" "${topksoftmax_bench}/peers/peers.cpp")
add_library(TopKSoftmax::harness ALIAS topksoftmax-harness)
target_include_directories(topksoftmax-harness PUBLIC
  "${topksoftmax_bench}" "${topksoftmax_bench}/../examples")
target_link_libraries(topksoftmax-harness
  PUBLIC topksoftmax-builders nlohmann_json::nlohmann_json
  PRIVATE CLI11::CLI11 topksoftmax-native-eigen topksoftmax-native-hnswlib
    $<TARGET_NAME_IF_EXISTS:topksoftmax-warnings>)

find_path(TOPKSOFTMAX_LIBZIP_INCLUDE_DIR zip.h DOC "The folder of libzip's zip.h")
find_library(TOPKSOFTMAX_LIBZIP_LIBRARY zip DOC "libzip, for heads and contexts in .npz files")
mark_as_advanced(TOPKSOFTMAX_LIBZIP_INCLUDE_DIR TOPKSOFTMAX_LIBZIP_LIBRARY)
if(TOPKSOFTMAX_LIBZIP_INCLUDE_DIR AND TOPKSOFTMAX_LIBZIP_LIBRARY)
  target_include_directories(topksoftmax-harness SYSTEM PRIVATE "${TOPKSOFTMAX_LIBZIP_INCLUDE_DIR}")
  target_link_libraries(topksoftmax-harness PRIVATE "${TOPKSOFTMAX_LIBZIP_LIBRARY}")
  target_compile_definitions(topksoftmax-harness PRIVATE TOPKSOFTMAX_BENCH_LIBZIP)
endif()

if(TARGET TopKSoftmax::MPI)
  target_link_libraries(topksoftmax-harness PRIVATE TopKSoftmax::MPI)
  target_compile_definitions(topksoftmax-harness PRIVATE TOPKSOFTMAX_BENCH_MPI)
endif()

find_path(TOPKSOFTMAX_OPENBLAS_INCLUDE_DIR openblas_config.h
  PATH_SUFFIXES openblas openblas-pthread openblas-serial openblas-openmp
    "${CMAKE_LIBRARY_ARCHITECTURE}" "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread"
    "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial" "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp"
  DOC "The folder of OpenBLAS's cblas.h")
find_library(TOPKSOFTMAX_OPENBLAS_LIBRARY openblas DOC "OpenBLAS, for the row peer:openblas of the harness")
mark_as_advanced(TOPKSOFTMAX_OPENBLAS_INCLUDE_DIR TOPKSOFTMAX_OPENBLAS_LIBRARY)
if(TOPKSOFTMAX_OPENBLAS_INCLUDE_DIR AND TOPKSOFTMAX_OPENBLAS_LIBRARY)
  target_sources(topksoftmax-harness PRIVATE
    "${topksoftmax_bench}/peers/openblas.cpp" "${topksoftmax_bench}/peers/openblas_kernels.cpp")
  target_include_directories(topksoftmax-harness SYSTEM PRIVATE "${TOPKSOFTMAX_OPENBLAS_INCLUDE_DIR}")
  target_link_libraries(topksoftmax-harness PRIVATE "${TOPKSOFTMAX_OPENBLAS_LIBRARY}")
  target_compile_definitions(topksoftmax-harness PRIVATE TOPKSOFTMAX_BENCH_OPENBLAS)
endif()

if(TOPKSOFTMAX_BENCH_PEERS)
  find_package(dnnl 2 CONFIG) # oneDNN 3 has another interface
  if(dnnl_FOUND)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_sources(topksoftmax-harness PRIVATE "${topksoftmax_bench}/peers/onednn.cpp")
    target_link_libraries(topksoftmax-harness PRIVATE DNNL::dnnl OpenMP::OpenMP_CXX)
    target_compile_definitions(topksoftmax-harness PRIVATE TOPKSOFTMAX_BENCH_ONEDNN)
  endif()
  find_package(faiss CONFIG)
  if(faiss_FOUND)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_sources(topksoftmax-harness PRIVATE "${topksoftmax_bench}/peers/faiss.cpp")
    target_link_libraries(topksoftmax-harness PRIVATE faiss OpenMP::OpenMP_CXX)
    target_compile_definitions(topksoftmax-harness PRIVATE TOPKSOFTMAX_BENCH_FAISS)
  endif()
endif()
