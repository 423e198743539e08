// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program does with Eigen itself: matrices that grow, move, are decomposed and solved. Throws
/// std::runtime_error where a result is wrong. Called between builds, so that its memory and the library's
/// lie side by side.
void do_own_algebra(int size);
