// SPDX-License-Identifier: Apache-2.0
#pragma once

// Newer versions of Highway have targets beyond those that this library names: on x86, those of smaller
// numbers have all that those of larger ones have. Asked behind Highway's headers, of HWY_TARGET as it is then.

/// Whether the target has AVX-512.
#define TOPKSOFTMAX_TARGET_HAS_AVX3 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
/// Whether the target has AVX-512 with VNNI and what else Ice Lake has.
#define TOPKSOFTMAX_TARGET_HAS_AVX3_DL (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL)
