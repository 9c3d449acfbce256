// SPDX-License-Identifier: Apache-2.0
#include "compute/train/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace falaj::train {
namespace {

constexpr double kSize = 260, kEdge = 34;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string text_of(const Score& score) {
  return fmt::format("{:.4f} <small>({:.4f} to {:.4f})</small>", score.value, score.low, score.high);
}

// A curve in a square whose axes go from 0 to 1.
std::string plot(const char* title, const char* x, const char* y, const Curve& curve, bool diagonal, bool dots) {
  const auto place = [](double at, bool upward) { return upward ? kEdge + (1 - at) * kSize : kEdge + at * kSize; };
  std::string points;
  for (std::size_t i = 0; i < curve.x.size(); ++i)
    points += fmt::format("{:.1f},{:.1f} ", place(curve.x[i], false), place(curve.y[i], true));
  std::string out = fmt::format("<figure><figcaption>{}</figcaption><svg width='{:.0f}' height='{:.0f}'>", title,
                                kSize + 2 * kEdge, kSize + 2 * kEdge);
  out += fmt::format("<rect x='{0:.0f}' y='{0:.0f}' width='{1:.0f}' height='{1:.0f}' class='frame'/>", kEdge, kSize);
  if (diagonal)
    out +=
        fmt::format("<line x1='{0:.0f}' y1='{1:.0f}' x2='{1:.0f}' y2='{0:.0f}' class='faint'/>", kEdge, kEdge + kSize);
  out += fmt::format("<polyline points='{}' class='curve'/>", points);
  if (dots)
    for (std::size_t i = 0; i < curve.x.size(); ++i)
      out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' class='dot'/>", place(curve.x[i], false),
                         place(curve.y[i], true));
  out += fmt::format("<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>{}</text>", kEdge + kSize / 2,
                     kEdge * 1.7 + kSize, x);
  out += fmt::format("<text x='12' y='{0:.0f}' text-anchor='middle' transform='rotate(-90 12 {0:.0f})'>{1}</text>",
                     kEdge + kSize / 2, y);
  return out + "</svg></figure>";
}

std::string bars(const std::vector<Model::Importance>& importance) {
  std::string out = "<h2>What the model looks at</h2><table>";
  const double most = importance.empty() ? 1 : std::max(importance[0].share, 1e-12);
  for (std::size_t i = 0; i < std::min<std::size_t>(importance.size(), 25); ++i)
    out += fmt::format("<tr><td>{}</td><td><div class='bar' style='width:{:.0f}px'></div></td><td>{:.1f} %</td></tr>",
                       escaped(importance[i].feature), 300 * importance[i].share / most, importance[i].share * 100);
  return out + "</table>";
}

std::string confusion(const Problem& problem, const Result& result) {
  const auto classes = problem.classes.size();
  if (classes > 30) return "";
  std::vector<std::size_t> counts(classes * classes);
  for (std::size_t i = 0; i < result.labels.size(); ++i) {
    const auto was = static_cast<std::size_t>(result.labels[i]);
    std::size_t said = 0;
    if (problem.objective == Objective::binary) {
      said = result.predictions[i] >= 0.5F;
    } else {
      const auto* row = result.predictions.data() + i * classes;
      said = static_cast<std::size_t>(std::max_element(row, row + classes) - row);
    }
    ++counts[was * classes + said];
  }
  std::string out = "<h2>What was, and what the model said</h2><table><tr><th></th>";
  for (const auto& name : problem.classes) out += fmt::format("<th>said {}</th>", escaped(name));
  out += "</tr>";
  for (std::size_t was = 0; was < classes; ++was) {
    out += fmt::format("<tr><th>was {}</th>", escaped(problem.classes[was]));
    for (std::size_t said = 0; said < classes; ++said) out += fmt::format("<td>{}</td>", counts[was * classes + said]);
    out += "</tr>";
  }
  return out + "</table>";
}

// Errors of a regression, from the 1st to the 99th percentile.
std::string residuals(const Result& result) {
  std::vector<double> off;
  for (std::size_t i = 0; i < result.labels.size(); ++i)
    off.push_back(double{result.predictions[i]} - result.labels[i]);
  std::sort(off.begin(), off.end());
  if (off.empty()) return "";
  std::string out = "<h2>How far predictions are off</h2><table><tr><th>percentile</th><th>predicted - true</th></tr>";
  for (const int p : {1, 5, 25, 50, 75, 95, 99})
    out += fmt::format("<tr><td>{}</td><td>{:.4g}</td></tr>", p,
                       off[static_cast<std::size_t>(p) * (off.size() - 1) / 100]);
  return out + "</table>";
}

}  // namespace

std::string report_html(const Problem& problem, const Result& result) {
  std::string out =
      "<!doctype html><html lang='en'><meta charset='utf-8'><title>" + escaped(result.name) +
      "</title><style>body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;color:#223}"
      "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #dde}"
      "figure{display:inline-block;margin:0 1em 1em 0}svg{font:12px system-ui}.frame{fill:none;stroke:#99a}"
      ".faint{stroke:#ccd}.curve{fill:none;stroke:#0a6e8a;stroke-width:2}.dot,.bar{fill:#0a6e8a;background:#0a6e8a}"
      ".bar{height:12px}small{color:#667}</style>";
  out += fmt::format("<h1>{}</h1><p>{}. {} rows learned from, {} to decide when to stop, {} tested on; split {}.</p>",
                     escaped(result.name), escaped(result.model), problem.rows[0], problem.rows[1], problem.rows[2],
                     escaped(problem.split));
  out += "<h2>On rows it never saw</h2><table>";
  for (const auto& one : result.scores)
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>", one.name, text_of(one.score));
  out += fmt::format("</table><p><small>With 95 % intervals. The exported model is {}.</small></p>",
                     result.parity.sentence());
  for (const auto& note : result.notes) out += fmt::format("<p>{}</p>", escaped(note));
  if (problem.objective == Objective::binary) {
    out += plot("ROC", "false alarms", "found", roc_curve(result.predictions, result.labels), true, false);
    out += plot("Precision and recall", "found", "right when it says so",
                precision_recall_curve(result.predictions, result.labels), false, false);
    out += plot("Calibration", "said", "happened", calibration_curve(result.predictions, result.labels), true, true);
  }
  out += problem.classes.empty() ? residuals(result) : confusion(problem, result);
  if (!result.importance.empty()) out += bars(result.importance);
  if (!result.slices.empty()) {
    out += fmt::format("<h2>Broken down, by {}</h2><table><tr><th>column</th><th>value</th><th>rows</th><th></th></tr>",
                       result.scores.empty() ? "" : result.scores[0].name);
    for (const auto& slice : result.slices)
      out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(slice.column),
                         escaped(slice.value), slice.rows, text_of(slice.score));
    out += "</table>";
  }
  return out + "</html>\n";
}

}  // namespace falaj::train
