// SPDX-License-Identifier: Apache-2.0
#include "bench/quantiles.h"

#include <algorithm>
#include <cstddef>

namespace kairos {

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  const double last = static_cast<double>(values.size() - 1);
  const auto at = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * last + 0.5);
  std::sort(values.begin(), values.end());
  return values[at];
}

double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

double Spread(const std::vector<double>& values) {
  const double middle = Median(values);
  if (middle == 0.0) return 0.0;
  return 0.5 * (Quantile(values, 0.75) - Quantile(values, 0.25)) / middle;
}

}  // namespace kairos
