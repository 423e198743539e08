# SPDX-License-Identifier: Apache-2.0
#
# Builds for a big-endian machine, IBM Z, with Debian's cross compiler, and runs the tests under qemu's user mode emulation:
#
#   dpkg --add-architecture s390x && apt-get update
#   apt-get install g++-s390x-linux-gnu qemu-user libhwy-dev:s390x libgtest-dev:s390x libgmock-dev:s390x \
#     libgomp1:s390x
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR s390x)
set(CMAKE_LIBRARY_ARCHITECTURE s390x-linux-gnu)
set(CMAKE_C_COMPILER s390x-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER s390x-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-s390x)
