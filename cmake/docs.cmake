# SPDX-License-Identifier: Apache-2.0
#
# Target docs: a reference of the public headers with the guides, as HTML in docs/ of the build folder. Warnings are
# errors: every public name is documented, and every link leads somewhere.
find_program(TOPKSOFTMAX_DOXYGEN doxygen DOC "Doxygen, for the target docs")
mark_as_advanced(TOPKSOFTMAX_DOXYGEN)
if(NOT TOPKSOFTMAX_DOXYGEN)
  return()
endif()

# Formulas are typeset by MathJax: the system's, or else the project's own server.
find_path(TOPKSOFTMAX_MATHJAX MathJax.js PATHS /usr/share/javascript/mathjax DOC "Folder of MathJax 2")
mark_as_advanced(TOPKSOFTMAX_MATHJAX)
set(mathjax_setting "")
if(TOPKSOFTMAX_MATHJAX)
  set(mathjax_setting "MATHJAX_RELPATH = \"${TOPKSOFTMAX_MATHJAX}\"")
endif()
configure_file(cmake/Doxyfile.in docs/Doxyfile @ONLY)
add_custom_target(docs
  COMMAND "${TOPKSOFTMAX_DOXYGEN}" "${PROJECT_BINARY_DIR}/docs/Doxyfile"
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${PROJECT_SOURCE_DIR}/.github/figures" "${PROJECT_BINARY_DIR}/docs/html/.github/figures"
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${PROJECT_SOURCE_DIR}/.github/figures" "${PROJECT_BINARY_DIR}/docs/figures"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Writing the reference to ${PROJECT_BINARY_DIR}/docs/html/index.html"
  VERBATIM)
