// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The version of the library that these headers are of.
#define TOPKSOFTMAX_VERSION_MAJOR 0
#define TOPKSOFTMAX_VERSION_MINOR 2
#define TOPKSOFTMAX_VERSION_PATCH 0

/// The same as one number that grows with it: 10000·major + 100·minor + patch.
#define TOPKSOFTMAX_VERSION \
  (TOPKSOFTMAX_VERSION_MAJOR * 10000 + TOPKSOFTMAX_VERSION_MINOR * 100 + TOPKSOFTMAX_VERSION_PATCH)
