# SPDX-License-Identifier: Apache-2.0
#
# topksoftmax-warnings: the warnings our own code is compiled with. Link it PRIVATE, inside $<BUILD_INTERFACE:...>
# for a target that is installed, so that it never reaches a user of the library. -Wsign-conversion is a part of
# Clang's -Wconversion: with it, what GCC passes builds under the presets of Clang.
add_library(topksoftmax-warnings INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(topksoftmax-warnings INTERFACE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    $<$<BOOL:${TOPKSOFTMAX_WARNINGS_AS_ERRORS}>:-Werror>)
endif()
