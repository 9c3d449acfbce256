// SPDX-License-Identifier: Apache-2.0
#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr double kWidth = 960, kHeight = 540, kLeft = 80, kRight = 24, kTop = 48, kBottom = 56, kLegendRow = 20;
constexpr std::size_t kNameMax = 60;
// Told apart by those who see fewer colours too (Okabe and Ito, 2008).
constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#000000", "#b3a200"};
constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

constexpr double kNothing = 1e-300;  // too little to divide by

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // Something to divide by, also when all values are the same.
  void widen() {
    if (empty()) low = 0, high = 1;
    if (high / 2 - low / 2 < kNothing) {
      const double more = std::abs(low) < kNothing ? 1 : std::abs(low) * 0.1;
      low = std::max(low - more, std::numeric_limits<double>::lowest());
      high = std::min(high + more, std::numeric_limits<double>::max());
    }
  }
  // Room between the line and the frame.
  void pad() {
    const double more = (high / 2 - low / 2) * 0.08;
    if (std::isfinite(low - more) && std::isfinite(high + more)) low -= more, high += more;
  }
  // 0 to 1. Halves first: the distance of two finite numbers need not be finite.
  double share(double value) const { return (value / 2 - low / 2) / (high / 2 - low / 2); }
};

std::string number_text(double value) { return fmt::format("{:.6g}", value == 0 ? 0.0 : value); }

struct Tick {
  double at = 0;  // as the axis is scaled
  std::string label;
};

std::vector<Tick> plain(const Range& range) {
  std::vector<Tick> out;
  for (const double at : ticks(range.low, range.high, 9)) out.push_back({at, number_text(at)});
  return out;
}

// Of a range of decimal logarithms: whole powers of ten, or round numbers when there is hardly one of them.
std::vector<Tick> logarithmic(const Range& range) {
  std::vector<Tick> out;
  if (range.high - range.low < 1) {
    for (const double value : ticks(std::pow(10.0, range.low), std::pow(10.0, range.high), 9))
      if (value > 0) out.push_back({std::log10(value), number_text(value)});
  } else {
    const auto first = static_cast<int>(std::floor(range.low)), last = static_cast<int>(std::ceil(range.high));
    const int step = std::max(1, (last - first + 7) / 8);
    for (int power = first; power < last + step; power += step)
      out.push_back({static_cast<double>(power),
                     std::abs(power) < 6 ? fmt::format("{:g}", std::pow(10.0, power)) : fmt::format("1e{}", power)});
  }
  return out;
}

// At most so many characters, whole ones.
std::string shortened(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++characters > kNameMax)
      return std::string(text.substr(0, i)) + "…";
  return std::string(text);
}

class Svg {
 public:
  explicit Svg(const Chart& chart)
      : chart_(chart), bottom_(kHeight), height_(kHeight + kBottom + kLegendRow * static_cast<double>(rows())) {
    for (const auto& line : chart.lines) {
      CHECK(line.x.size() == line.y.size(), "a line needs as many x as y");
      for (std::size_t i = 0; i < line.x.size(); ++i) {
        if (!std::isfinite(scaled(line.y[i]))) continue;
        x_.take(line.x[i]);
        y_.take(scaled(line.y[i]));
      }
    }
    x_.widen();
    y_.widen();
    x_ticks_ = ticks(x_.low, x_.high, 8);
    y_.pad();
    y_ticks_ = chart.log_y ? logarithmic(y_) : plain(y_);
  }

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<text x=\"{2:g}\" y=\"28\" font-size=\"17\" fill=\"#222\">{3}</text>\n",
        kWidth, height_, kLeft, xml_text(shortened(chart_.title)));
    axes();
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) line(i);
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) legend(i);
    return out_ + "</svg>\n";
  }

 private:
  std::size_t rows() const { return (chart_.lines.size() + 1) / 2; }
  double scaled(double y) const {
    if (!chart_.log_y) return y;
    return y > 0 ? std::log10(y) : std::numeric_limits<double>::quiet_NaN();
  }
  double at_x(double x) const { return kLeft + x_.share(x) * (kWidth - kLeft - kRight); }
  double at_y(double scaled_y) const { return bottom_ - y_.share(scaled_y) * (bottom_ - kTop); }

  void axes() {
    for (const auto& tick : y_ticks_) {
      if (tick.at < y_.low || tick.at > y_.high) continue;
      out_ += fmt::format(
          "<path d=\"M{:g} {:.1f}H{:g}\" stroke=\"#ddd\"/><text x=\"{:g}\" y=\"{:.1f}\" text-anchor=\"end\" "
          "fill=\"#444\">{}</text>\n",
          kLeft, at_y(tick.at), kWidth - kRight, kLeft - 8, at_y(tick.at) + 4, tick.label);
    }
    for (const double tick : x_ticks_) {
      if (tick < x_.low || tick > x_.high) continue;
      out_ += fmt::format(
          "<path d=\"M{0:.1f} {1:g}v6\" stroke=\"#888\"/><text x=\"{0:.1f}\" y=\"{2:g}\" text-anchor=\"middle\" "
          "fill=\"#444\">{3}</text>\n",
          at_x(tick), bottom_, bottom_ + 22, number_text(tick));
    }
    out_ += fmt::format(
        "<path d=\"M{0:g} {1:g}V{2:g}H{3:g}\" fill=\"none\" stroke=\"#888\"/><text x=\"{4:g}\" y=\"{5:g}\" "
        "text-anchor=\"middle\" fill=\"#444\">{6}</text>\n",
        kLeft, kTop, bottom_, kWidth - kRight, (kLeft + kWidth - kRight) / 2, bottom_ + 42, xml_text(chart_.x_title));
  }

  void line(std::size_t index) {
    const auto& points = chart_.lines[index];
    std::string path, lone;
    std::size_t run = 0;  // points since the last interruption
    const auto end_run = [&](std::size_t at) {
      // A point alone has no line: it is a dot.
      if (run == 1)
        lone += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x(points.x[at - 1]),
                            at_y(scaled(points.y[at - 1])), colour(index));
      run = 0;
    };
    for (std::size_t i = 0; i < points.x.size(); ++i) {
      const double y = scaled(points.y[i]);
      if (!std::isfinite(y) || !std::isfinite(points.x[i])) {
        end_run(i);
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", run++ == 0 ? 'M' : 'L', at_x(points.x[i]), at_y(y));
    }
    end_run(points.x.size());
    if (!path.empty())
      out_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n", path, colour(index),
                          dashes(index));
    out_ += lone;
  }

  void legend(std::size_t index) {
    const double x = index % 2 == 0 ? kLeft : (kLeft + kWidth) / 2;
    const double y = bottom_ + kBottom + kLegendRow * static_cast<double>(index / 2);
    out_ += fmt::format(
        "<path d=\"M{:g} {:g}h22\" stroke=\"{}\" stroke-width=\"3\"{}/><text x=\"{:g}\" y=\"{:g}\" "
        "fill=\"#222\">{}</text>\n",
        x, y, colour(index), dashes(index), x + 30, y + 4, xml_text(shortened(chart_.lines[index].name)));
  }

  static std::string_view colour(std::size_t index) { return kColours[index % std::size(kColours)]; }
  // The second time round the colours, lines are dashed.
  static std::string_view dashes(std::size_t index) {
    constexpr std::string_view kDashes[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 3\""};
    return kDashes[index / std::size(kColours) % std::size(kDashes)];
  }

  const Chart& chart_;
  const double bottom_, height_;
  Range x_, y_;
  std::vector<double> x_ticks_;
  std::vector<Tick> y_ticks_;
  std::string out_;
};

// One character of UTF-8 at the front, or 0 bytes when there is none that XML may hold.
std::size_t xml_character(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80) return byte >= 0x20 || byte == '\t' || byte == '\n' ? 1 : 0;
  const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
  if (text.size() < length || !is_utf8(text.substr(0, length))) return 0;
  const auto third = length == 3 ? static_cast<unsigned char>(text[2]) : 0;
  const bool not_a_character = byte == 0xEF && static_cast<unsigned char>(text[1]) == 0xBF && third >= 0xBE;
  return not_a_character ? 0 : length;
}

}  // namespace

std::string sparkline(std::span<const double> values) {
  Range range;
  for (const double value : values) range.take(value);
  range.widen();
  std::string out;
  for (const double value : values) {
    if (std::isnan(value)) {
      out += ' ';
      continue;
    }
    const double share = std::isfinite(value) ? range.share(value) : value < 0 ? 0 : 1;
    out += kBlocks[std::min<std::size_t>(7, static_cast<std::size_t>(share * 8))];
  }
  return out;
}

std::vector<double> ticks(double low, double high, std::size_t most) {
  CHECK(std::isfinite(low) && std::isfinite(high) && low <= high && most >= 2, "no range for ticks");
  const double rough = (high / static_cast<double>(most) - low / static_cast<double>(most));
  const double magnitude = std::pow(10.0, std::floor(std::log10(std::max(rough, kNothing))));
  double step = 0;
  for (double factor : {1.0, 2.0, 5.0, 10.0, 20.0}) {
    step = factor * magnitude;
    if (std::ceil(high / step) - std::floor(low / step) + 1 <= static_cast<double>(most)) break;
  }
  std::vector<double> out;
  const double first = std::floor(low / step), last = std::max(std::ceil(high / step), first + 1);
  for (double i = first; i <= last && out.size() < most + 2; ++i)
    if (std::isfinite(i * step)) out.push_back(i * step);
  if (out.size() < 2) out = {low, high};
  return out;
}

std::string to_svg(const Chart& chart) { return Svg(chart).draw(); }

std::string xml_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto length = xml_character(text);
    switch (length == 1 ? text.front() : '\0') {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

}  // namespace falaj::cli
