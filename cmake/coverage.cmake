# SPDX-License-Identifier: Apache-2.0
#
# Counts which lines run (TOPKSOFTMAX_COVERAGE). After the tests, target coverage-report prints the figures of each
# file of the library, writes coverage.html with its lines, and fails where fewer than 95 % of them have run.
option(TOPKSOFTMAX_COVERAGE "Count the lines that the tests run" OFF)
if(NOT TOPKSOFTMAX_COVERAGE)
  return()
endif()

add_compile_options(--coverage)
add_link_options(--coverage)
find_program(TOPKSOFTMAX_GCOVR gcovr REQUIRED)
add_custom_target(coverage-report
  COMMAND "${TOPKSOFTMAX_GCOVR}" --root "${PROJECT_SOURCE_DIR}" --object-directory "${PROJECT_BINARY_DIR}"
    --filter "${PROJECT_SOURCE_DIR}/include/" --filter "${PROJECT_SOURCE_DIR}/src/"
    --exclude-throw-branches --html-details "${PROJECT_BINARY_DIR}/coverage.html" --txt --print-summary
    --fail-under-line 95
  USES_TERMINAL VERBATIM)
