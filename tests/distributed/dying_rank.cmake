# SPDX-License-Identifier: Apache-2.0
#
# Runs the command behind --, of whose ranks one dies, which must end all of them before any has answered.
set(command)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 4 ${last})
  list(APPEND command "${CMAKE_ARGV${i}}")
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 120)
message("${output}")
if(NOT output MATCHES "all have asked")
  message(FATAL_ERROR "The ranks never came to where one of them dies")
elseif(output MATCHES "answered")
  message(FATAL_ERROR "A rank answered without the one that died")
elseif(NOT result MATCHES "^[0-9]+$" OR result EQUAL 0)
  message(FATAL_ERROR "The run ended with ${result}, not by MPI's abort")
endif()
