// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks what the library offers to its users: everything else in it is compiled with hidden visibility.
/// Put it on functions that are defined in the library, and on classes that have such members, are thrown,
/// or have virtual functions: `class TOPKSOFTMAX_EXPORT Error`. Templates and inline functions need it not.
#if defined(__GNUC__) || defined(__clang__)
#define TOPKSOFTMAX_EXPORT __attribute__((visibility("default")))
#else
#define TOPKSOFTMAX_EXPORT
#endif
