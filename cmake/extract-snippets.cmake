# SPDX-License-Identifier: Apache-2.0
#
# Writes every ```cpp block of some Markdown files to a source file of its own in OUTPUT: README-1.cpp, tuning-1.cpp, …
# cmake "-DDOCUMENTS=a.md;b.md" -DOUTPUT=… -P extract-snippets.cmake
cmake_minimum_required(VERSION 3.22)

foreach(document IN LISTS DOCUMENTS)
  get_filename_component(name "${document}" NAME_WE)
  file(READ "${document}" text)
  set(number 0)
  while(text MATCHES "\n```cpp\n")
    string(FIND "${text}" "\n```cpp\n" start)
    math(EXPR start "${start} + 8")
    string(SUBSTRING "${text}" ${start} -1 text)
    string(FIND "${text}" "\n```" end)
    string(SUBSTRING "${text}" 0 ${end} snippet)
    string(SUBSTRING "${text}" ${end} -1 text)
    math(EXPR number "${number} + 1")
    file(CONFIGURE OUTPUT "${OUTPUT}/${name}-${number}.cpp" CONTENT "${snippet}\n" @ONLY)
    list(APPEND written "${OUTPUT}/${name}-${number}.cpp")
  endwhile()
endforeach()

# Snippets that are no more.
file(GLOB present "${OUTPUT}/*.cpp")
foreach(snippet IN LISTS present)
  if(NOT snippet IN_LIST written)
    file(REMOVE "${snippet}")
  endif()
endforeach()
