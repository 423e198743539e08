# SPDX-License-Identifier: Apache-2.0
#
# cmake -DSOURCE=… -DWORK=… -DCXX=… -DLAUNCHER=… -P own_backend.cmake
# A backend from outside, with nothing but what is installed: it answers, is saved, loaded, certified and tuned, is held to
# the conformance suite, and takes part in the harness.
cmake_minimum_required(VERSION 3.25)
include("${SOURCE}/tests/consumer/steps.cmake")
set(build "${WORK}/own_backend")
build_project("${SOURCE}/examples/own_backend" "${build}" all "-DCMAKE_CXX_COMPILER=${CXX}"
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_PREFIX_PATH=${WORK}/prefix-OFF")

run("${build}/mine-demo" "${build}")
run("${build}/mine-conformance" --gtest_brief=1)

set(head --head "${build}/head.safetensors")
run("${build}/mine-bench" --list)
if(NOT output MATCHES "\nmine\n.*--set mine.kept=50")
  message(FATAL_ERROR "--list does not tell of mine:\n${output}")
endif()
run("${build}/mine-bench" ${head} --backends fused,mine,certify:mine --sweep --timed 100 --rounds 1
  --json "${build}/report.json" --html "${build}/report.html")
file(READ "${build}/report.json" json)
file(READ "${build}/report.html" html)
foreach(backend IN ITEMS mine certify:mine)
  if(NOT json MATCHES "\"backend\": *\"${backend}\"" OR NOT html MATCHES "${backend}")
    message(FATAL_ERROR "${backend} is not in the report")
  endif()
endforeach()
run("${build}/mine-bench" build ${head} --backend certify:mine --set certify:mine.kept=200 --out "${build}/mine.index")
run("${build}/mine-bench" inspect "${build}/mine.index" --verify ${head})
run("${build}/mine-bench" tune ${head} --target p5=0.3 --max-seconds 120)
if(NOT output MATCHES "\n *mine ")
  message(FATAL_ERROR "tune does not try mine:\n${output}")
endif()
