// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

namespace kairos {
namespace {

constexpr double kWidth = 460, kHeight = 320;  // of a panel
constexpr double kLeft = 62, kRight = 16, kTop = 34, kBottom = 46;
// Told apart without colour, too: the first is drawn through, the others are dashed.
constexpr const char* kColours[] = {"#1b6ca8", "#c2571a", "#3c7d3c"};
constexpr const char* kDashes[] = {"", "6 4", "2 3"};

// The least of 1, 2, 5 times a power of ten that makes at most five steps to `top`.
double Step(double top) {
  const double power = std::pow(10.0, std::floor(std::log10(top / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (top / (factor * power) <= 5) return factor * power;
  }
  return 10 * power;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

class Panel {
 public:
  Panel(const PlotPanel& panel, double at) : panel_(panel), at_(at) {
    for (const PlotLine& line : panel.lines) {
      for (const auto& [x, y] : line.points) {
        marks_.insert(x);
        top_ = std::max(top_, y);
      }
    }
    low_ = std::log2(*marks_.begin());
    high_ = std::max(std::log2(*marks_.rbegin()), low_ + 1);
  }

  std::string Draw() const {
    std::string svg = Text(at_ + kLeft, 20, "start", panel_.title);
    const double step = Step(top_);
    for (double y = 0; y <= top_ * 1.08; y += step) {
      svg += fmt::format(
          "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n",
          at_ + kLeft, at_ + kWidth - kRight, Y(y), Y(y));
      svg += Text(at_ + kLeft - 6, Y(y) + 4, "end", fmt::format("{:g}", y));
    }
    for (const double mark : marks_) {
      svg += Text(X(mark), kHeight - kBottom + 16, "middle", fmt::format("{:g}", mark));
    }
    svg += Text(at_ + (kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", panel_.x_label);
    svg += fmt::format("<text transform=\"translate({:.1f},{:.1f}) rotate(-90)\" "
                       "text-anchor=\"middle\">{}</text>\n",
                       at_ + 14, (kTop + kHeight - kBottom) / 2, panel_.y_label);
    for (size_t i = 0; i < panel_.lines.size(); ++i) svg += DrawLine(i);
    return svg;
  }

 private:
  double X(double x) const {
    const double share = (std::log2(x) - low_) / (high_ - low_);
    return at_ + kLeft + 8 + share * (kWidth - kLeft - kRight - 16);
  }
  double Y(double y) const {
    return kHeight - kBottom - y / (top_ * 1.08) * (kHeight - kTop - kBottom);
  }

  std::string DrawLine(size_t index) const {
    const PlotLine& line = panel_.lines[index];
    if (line.points.empty()) return "";
    const char* colour = kColours[index % std::size(kColours)];
    std::string path, dots;
    for (const auto& [x, y] : line.points) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", X(x), Y(y));
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", X(x), Y(y),
                          colour);
    }
    const auto& [x, y] = line.points.back();
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
                       "stroke-dasharray=\"{}\"/>\n{}{}",
                       path, colour, kDashes[index % std::size(kDashes)], dots,
                       Text(X(x) - 4, Y(y) - 8, "end", line.name));
  }

  const PlotPanel& panel_;
  const double at_;
  std::set<double> marks_;
  double top_ = 0;
  double low_ = 0;
  double high_ = 1;
};

}  // namespace

bool WriteSvgPlot(const std::string& path, const std::vector<PlotPanel>& panels) {
  std::string body;
  double at = 0;
  for (const PlotPanel& panel : panels) {
    const bool empty = std::all_of(panel.lines.begin(), panel.lines.end(),
                                   [](const PlotLine& line) { return line.points.empty(); });
    if (empty) continue;
    body += Panel(panel, at).Draw();
    at += kWidth;
  }
  std::ofstream file(path);
  file << fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n{2}</svg>\n",
      std::max(at, 1.0), kHeight, body);
  file.close();
  return !file.fail();
}

}  // namespace kairos
