// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks what the compiled library offers, and types that are thrown or have virtual functions: all else in
/// it is compiled with hidden visibility.
#if defined(__GNUC__) || defined(__clang__)
#define TOPKSOFTMAX_EXPORT __attribute__((visibility("default")))
#else
#define TOPKSOFTMAX_EXPORT
#endif

/// The namespace of every header: topksoftmax, and within it one for the form that a file is compiled in,
/// which names leave out. So a program may hold the compiled library beside headers alone, for several
/// instruction sets, and the linker keeps all of them apart. Types of one form are not those of another.
///
/// TOPKSOFTMAX_HEADER_ONLY, which the target TopKSoftmax::header_only defines, chooses headers alone.
#if defined(TOPKSOFTMAX_HEADER_ONLY)
// Highway 1.0.3 compiles for HWY_AVX3_DL only where that is asked for. AVX-VNNI is a part of it.
#if defined(__AVXVNNI__) && !defined(HWY_WANT_AVX3_DL)
#define HWY_WANT_AVX3_DL
#include <hwy/detect_targets.h>
#undef HWY_WANT_AVX3_DL
#else
#include <hwy/detect_targets.h>
#endif
#if HWY_STATIC_TARGET == HWY_AVX3_DL
#define TOPKSOFTMAX_FORM header_only_avx3_dl
#elif defined(HWY_AVX3_ZEN4) && HWY_STATIC_TARGET == HWY_AVX3_ZEN4  // this and others: not in Highway 1.0.3
#define TOPKSOFTMAX_FORM header_only_avx3_zen4
#elif defined(HWY_AVX3_SPR) && HWY_STATIC_TARGET == HWY_AVX3_SPR
#define TOPKSOFTMAX_FORM header_only_avx3_spr
#elif defined(HWY_AVX10_2) && HWY_STATIC_TARGET == HWY_AVX10_2
#define TOPKSOFTMAX_FORM header_only_avx10_2
#elif defined(HWY_SSE2) && HWY_STATIC_TARGET == HWY_SSE2
#define TOPKSOFTMAX_FORM header_only_sse2
#elif defined(HWY_NEON_WITHOUT_AES) && HWY_STATIC_TARGET == HWY_NEON_WITHOUT_AES
#define TOPKSOFTMAX_FORM header_only_neon_without_aes
#elif defined(HWY_NEON_BF16) && HWY_STATIC_TARGET == HWY_NEON_BF16
#define TOPKSOFTMAX_FORM header_only_neon_bf16
#elif HWY_STATIC_TARGET == HWY_AVX3
#define TOPKSOFTMAX_FORM header_only_avx3
#elif HWY_STATIC_TARGET == HWY_AVX2
#define TOPKSOFTMAX_FORM header_only_avx2
#elif HWY_STATIC_TARGET == HWY_SSE4
#define TOPKSOFTMAX_FORM header_only_sse4
#elif HWY_STATIC_TARGET == HWY_NEON
#define TOPKSOFTMAX_FORM header_only_neon
#elif HWY_STATIC_TARGET == HWY_SSSE3
#define TOPKSOFTMAX_FORM header_only_ssse3
#elif HWY_STATIC_TARGET == HWY_EMU128
#define TOPKSOFTMAX_FORM header_only_emu128
#else
#define TOPKSOFTMAX_FORM header_only_scalar
#endif
#else
#define TOPKSOFTMAX_FORM compiled
#endif
#define TOPKSOFTMAX_NAMESPACE topksoftmax::inline TOPKSOFTMAX_FORM

/// Before definitions in files X-inl.hpp: the compiled library compiles them once; headers alone include
/// them.
#if defined(TOPKSOFTMAX_HEADER_ONLY)
#define TOPKSOFTMAX_INLINE inline
#else
#define TOPKSOFTMAX_INLINE
#endif

/// What builds and trains (the files build*.hpp) takes compilers long. A program of many such files may
/// compile it once: all files are given TOPKSOFTMAX_BUILDERS_ELSEWHERE, for which these headers declare only,
/// but some, which define TOPKSOFTMAX_BUILDERS_HERE and include those that the others do. Each header needs
/// to be in one of these; where one builder uses another, the linker keeps one of the two that it then finds.
#if defined(TOPKSOFTMAX_BUILDERS_HERE)
#define TOPKSOFTMAX_BUILD_INLINE __attribute__((weak))  // of inline ones Clang may leave out constructors
#elif defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)
#define TOPKSOFTMAX_BUILD_INLINE
#else
#define TOPKSOFTMAX_BUILD_INLINE inline
#endif
