#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the project is built with, and the packages that are named, if any of it is missing; silent and quick if
# nothing is.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config
  libeigen3-dev libhwy-dev libhnswlib-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev libgmock-dev libboost-dev libbenchmark-dev libopenblas-dev libzip-dev libopenmpi-dev openmpi-bin python3-numpy
  "$@"
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  for tool in cmake ninja c++; do
    command -v "$tool" >/dev/null && continue
    echo "install-deps: $tool is missing, and this system has no apt-get." >&2
    echo "Install a C++20 compiler with OpenMP, CMake 3.25 and Ninja; CMake downloads the libraries itself." >&2
    exit 1
  done
  exit 0
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: missing: ${missing[*]}" >&2
    echo "Run this as root once: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
