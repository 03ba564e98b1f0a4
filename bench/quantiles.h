// SPDX-License-Identifier: Apache-2.0
// Order statistics of measurements. Pure; any thread.
#pragma once

#include <vector>

namespace kairos {

// The value below which `share` (0..1) of the values lie, by nearest rank; 0 of no values.
double Quantile(std::vector<double> values, double share);
double Median(const std::vector<double>& values);
// Half the distance between the quartiles as a share of the median: how far repetitions differ.
double Spread(const std::vector<double>& values);

}  // namespace kairos
