# SPDX-License-Identifier: Apache-2.0
#
# cmake -DOBJDUMP=… -DLIBRARY=… -DHEADER=… -P exports.cmake
# The functions that the header declares, and they alone, are the dynamic symbols that the library offers.
cmake_minimum_required(VERSION 3.25)
file(READ "${HEADER}" header)
string(REGEX MATCHALL "TOPK_API [^(]*topk_[a-z_]+\\(" declarations "${header}")
list(TRANSFORM declarations REPLACE ".*(topk_[a-z_]+)\\(" "\\1")
list(SORT declarations)

execute_process(COMMAND "${OBJDUMP}" --dynamic-syms "${LIBRARY}" OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
list(FILTER lines INCLUDE REGEX "^[0-9a-f]+ ")
list(FILTER lines EXCLUDE REGEX "\\*UND\\*")
list(TRANSFORM lines REPLACE ".* ([^ ]+)$" "\\1" OUTPUT_VARIABLE exported)
list(SORT exported)

list(LENGTH declarations count)
if(count LESS 20)
  message(FATAL_ERROR "only ${count} functions were found in ${HEADER}")
endif()
set(unknown ${exported})
list(REMOVE_ITEM unknown ${declarations})
set(missing ${declarations})
list(REMOVE_ITEM missing ${exported})
if(unknown OR missing)
  message(FATAL_ERROR "${LIBRARY}\nexports what is not in the header: ${unknown}\nlacks: ${missing}")
endif()
