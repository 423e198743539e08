# SPDX-License-Identifier: Apache-2.0
#
# TopKSoftmax::conformance: the conformance suite, compiled with the program that is linked with it, which defines
# topksoftmax::conformance::suite(). Read where it lies, here and where it is installed.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH topksoftmax_tests)
add_library(topksoftmax-conformance INTERFACE)
add_library(TopKSoftmax::conformance ALIAS topksoftmax-conformance)
target_sources(topksoftmax-conformance INTERFACE
  "${topksoftmax_tests}/conformance/backends.cpp"
  "${topksoftmax_tests}/conformance/conformance_test.cpp"
  "${topksoftmax_tests}/conformance/index_file_test.cpp"
  "${topksoftmax_tests}/conformance/out_of_memory_test.cpp"
  "${topksoftmax_tests}/support/allocations.cpp")
target_include_directories(topksoftmax-conformance INTERFACE "${topksoftmax_tests}")
target_link_libraries(topksoftmax-conformance INTERFACE
  TopKSoftmax::TopKSoftmax GTest::gmock GTest::gtest_main Threads::Threads)
