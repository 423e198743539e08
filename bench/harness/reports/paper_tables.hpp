// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// A measurement's rows as comma-separated values with a header: a row a setting, figures as measured.
std::string to_csv(const Measurement& measurement, const std::vector<std::size_t>& ks);

/// A measurement's rows as a LaTeX table (booktabs): system, setting, microseconds, speedup, P@k and
/// kilobytes.
std::string to_latex(const Measurement& measurement, const std::vector<std::size_t>& ks,
                     const std::string& caption);

}  // namespace topksoftmax::bench
