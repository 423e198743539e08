# SPDX-License-Identifier: Apache-2.0
#
# Steps of the scripts that take the library as users do.

# Runs a command, and leaves what it prints in `output`. One that fails ends the script.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Builds a target of the project in `source`, in the folder `build`, which is made anew; cmake's options follow. What
# debuggers need would take up to a quarter of the time, and is left out.
function(build_project source build target)
  file(REMOVE_RECURSE "${build}")
  run("${CMAKE_COMMAND}" -G Ninja -S "${source}" -B "${build}" -DCMAKE_CXX_FLAGS_DEBUG= ${ARGN})
  run("${CMAKE_COMMAND}" --build "${build}" --target "${target}")
endfunction()

# Builds `program` with a package that is installed in `prefix`, as pkg-config says (package: with its options); the
# compiler's call and the sources follow.
function(build_by_pkg_config program prefix package)
  cmake_path(GET program PARENT_PATH folder)
  file(REMOVE_RECURSE "${folder}")
  file(MAKE_DIRECTORY "${folder}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/lib/pkgconfig")
  run(pkg-config --cflags --libs ${package})
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${ARGN} ${flags} "-Wl,-rpath,${prefix}/lib" -o "${program}")
endfunction()
