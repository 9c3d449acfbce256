// SPDX-License-Identifier: Apache-2.0
#include "cli/pipeline_graph.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/output.h"

namespace falaj::cli {
namespace {

constexpr double kWide = 190, kHigh = 46, kGapX = 60, kGapY = 18, kMargin = 20, kTitle = 34;

std::string graph_word(const json::value& step, std::string_view key) {
  const auto& found = at_path(step, key);
  return found.is_string() ? std::string(found.get_string()) : "";
}

// How many steps come before each, along the longest way. Requires: each comes after those it needs.
std::map<std::string, std::size_t> depths(const json::array& steps) {
  std::map<std::string, std::size_t> out;
  for (const auto& step : steps) {
    std::size_t depth = 0;
    for (const auto& need : step.at("needs").as_array()) {
      const auto found = out.find(std::string(need.as_string()));
      if (found != out.end()) depth = std::max(depth, found->second + 1);
    }
    out[graph_word(step, "id")] = depth;
  }
  return out;
}

// Colours that are told apart without seeing red from green: each phase also has its own mark.
struct Look {
  std::string_view phase, fill, mark, escape;
};
constexpr Look kLooks[] = {
    {"waiting", "#f2f2f2", ".", "2"},    {"running", "#cfe2ff", ">", "36"}, {"asking", "#fff0c2", "?", "33"},
    {"succeeded", "#c8ecd4", "+", "32"}, {"kept", "#dff3e6", "=", "32"},    {"skipped", "#e6e6e6", "-", "2"},
    {"failed", "#ffd0c8", "x", "31"},    {"blocked", "#f6e0dc", "!", "31"}, {"cancelled", "#e9dcf2", "o", "35"},
};
const Look& look_of(std::string_view phase) {
  const auto found =
      std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& look) { return look.phase == phase; });
  return found == std::end(kLooks) ? kLooks[0] : *found;
}

std::string safe(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

}  // namespace

std::string graph_svg(const json::array& steps, const std::string& title) {
  struct Box {
    double x = 0, y = 0;
  };
  const auto depth = depths(steps);
  std::map<std::string, Box> boxes;
  std::map<std::size_t, std::size_t> rows;  // by column
  for (const auto& step : steps) {
    const auto id = graph_word(step, "id");
    const auto column = depth.at(id);
    const auto row = rows[column]++;
    boxes[id] = {kMargin + static_cast<double>(column) * (kWide + kGapX),
                 kTitle + kMargin + static_cast<double>(row) * (kHigh + kGapY)};
  }
  double width = 0, height = 0;
  for (const auto& entry : boxes) {
    width = std::max(width, entry.second.x + kWide + kMargin);
    height = std::max(height, entry.second.y + kHigh + kMargin);
  }
  auto out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:g}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{3}</text>\n",
      width, height, kMargin, safe(title));
  for (const auto& step : steps) {
    const auto& to = boxes.at(graph_word(step, "id"));
    for (const auto& need : step.at("needs").as_array()) {
      const auto& from = boxes.at(std::string(need.as_string()));
      const double x1 = from.x + kWide, y1 = from.y + kHigh / 2, x2 = to.x, y2 = to.y + kHigh / 2, bend = kGapX / 2;
      out += fmt::format(
          "<path d=\"M{:g},{:g} C{:g},{:g} {:g},{:g} {:g},{:g}\" fill=\"none\" stroke=\"#888\" stroke-width=\"1.3\"/>\n"
          "<path d=\"M{:g},{:g} l-6,-3.5 l0,7 z\" fill=\"#888\"/>\n",
          x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2, x2, y2);
    }
  }
  for (const auto& step : steps) {
    const auto id = graph_word(step, "id"), phase = graph_word(step, "phase");
    const auto& box = boxes.at(id);
    out += fmt::format(
        "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" rx=\"7\" fill=\"{}\" stroke=\"#555\"><title>{}"
        "</title></rect>\n<text x=\"{:g}\" y=\"{:g}\" font-weight=\"bold\">{}</text>\n"
        "<text x=\"{:g}\" y=\"{:g}\" fill=\"#444\">{}, {} {}</text>\n",
        box.x, box.y, kWide, kHigh, look_of(phase).fill, safe(graph_word(step, "why")), box.x + 10, box.y + 19,
        safe(id.substr(0, 24)), box.x + 10, box.y + 36, safe(graph_word(step, "kind")), look_of(phase).mark,
        safe(phase));
  }
  return out + "</svg>\n";
}

std::string graph_text(const json::array& steps, bool colour) {
  const auto depth = depths(steps);
  std::size_t widest = 0;
  for (const auto& step : steps) {
    const auto id = graph_word(step, "id");
    widest = std::max(widest, 2 * depth.at(id) + id.size());
  }
  std::string out;
  for (const auto& step : steps) {
    const auto id = graph_word(step, "id"), phase = graph_word(step, "phase");
    const auto& look = look_of(phase);
    std::string after;
    for (const auto& need : step.at("needs").as_array())
      after += (after.empty() ? "after " : ", ") + std::string(need.as_string());
    const auto line = fmt::format("{} {}{:<{}}  {:<9} {:<9} {}", look.mark, std::string(2 * depth.at(id), ' '), id,
                                  widest - 2 * depth.at(id), graph_word(step, "kind"), phase,
                                  graph_word(step, "why").empty() ? after : graph_word(step, "why"));
    out += colour ? fmt::format("\033[{}m{}\033[0m\n", look.escape, harmless(line)) : harmless(line) + "\n";
  }
  return out;
}

}  // namespace falaj::cli
