// SPDX-License-Identifier: Apache-2.0
// A line plot as an SVG file: what the figures of a bench look like side by side.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kairos {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x rising, y above 0
};

struct PlotPanel {
  std::string title;
  std::string x_label;  // x is drawn to the base 2, its values at the points
  std::string y_label;  // y begins at 0
  std::vector<PlotLine> lines;  // without points: left out
};

// The panels side by side. False when the file cannot be written.
bool WriteSvgPlot(const std::string& path, const std::vector<PlotPanel>& panels);

}  // namespace kairos
