# SPDX-License-Identifier: Apache-2.0
#
# Writes every ```cpp block of README to a source file of its own in OUTPUT: snippet-1.cpp, …
# cmake -DREADME=… -DOUTPUT=… -P extract-snippets.cmake
file(READ "${README}" text)
set(number 0)
while(text MATCHES "\n```cpp\n")
  string(FIND "${text}" "\n```cpp\n" start)
  math(EXPR start "${start} + 8")
  string(SUBSTRING "${text}" ${start} -1 text)
  string(FIND "${text}" "\n```" end)
  string(SUBSTRING "${text}" 0 ${end} snippet)
  string(SUBSTRING "${text}" ${end} -1 text)
  math(EXPR number "${number} + 1")
  file(CONFIGURE OUTPUT "${OUTPUT}/snippet-${number}.cpp" CONTENT "${snippet}\n" @ONLY)
endwhile()
