// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/plot.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr std::size_t kLinesMax = 8;

const json::value* at(const json::value& value, std::string_view path) {
  const json::value* here = &value;
  for (const auto name : split(path, '.')) {
    if (!here->is_object()) return nullptr;
    here = here->get_object().if_contains(name);
    if (!here) return nullptr;
  }
  return here->is_null() ? nullptr : here;
}

std::string words(const json::value* value) {
  if (!value) return "";
  if (value->is_string()) return std::string(value->get_string());
  if (value->is_double()) return fmt::format("{:.6g}", value->get_double());
  if (value->is_array()) {
    std::string out;
    for (const auto& item : value->get_array()) out += (out.empty() ? "" : ", ") + words(&item);
    return out;
  }
  if (value->is_object()) {
    std::string out;
    for (const auto& [key, item] : value->get_object())
      out += (out.empty() ? "" : ", ") + std::string(key) + "=" + words(&item);
    return out;
  }
  return json::serialize(*value);
}
std::string words(const json::value& value, std::string_view path) { return words(at(value, path)); }

const json::array& list(const json::value& value, std::string_view path) {
  static const json::array none;
  const auto* found = at(value, path);
  return found && found->is_array() ? found->get_array() : none;
}

using Rows = std::vector<std::vector<std::string>>;

class Page {
 public:
  explicit Page(const std::string& title) {
    html_ = fmt::format(
        "<!doctype html><html><head><meta charset='utf-8'><title>{0}</title><style>"
        "body{{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}}"
        "h1{{font-size:1.6em}}h2{{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ddd}}"
        "table{{border-collapse:collapse;margin:.5em 0}}td,th{{text-align:left;vertical-align:top;padding:.2em 1em "
        ".2em 0}}"
        "th{{font-weight:600;color:#555}}tr+tr td{{border-top:1px solid #eee}}.none{{color:#888}}</style></head><body>"
        "<h1>{0}</h1>",
        xml_text(title));
  }
  void section(std::string_view title) { html_ += fmt::format("<h2>{}</h2>", xml_text(title)); }
  void text(std::string_view text) { html_ += fmt::format("<p>{}</p>", xml_text(text)); }
  void facts(const Rows& rows) {
    html_ += "<table>";
    for (const auto& row : rows)
      if (!row[1].empty()) html_ += fmt::format("<tr><th>{}</th><td>{}</td></tr>", xml_text(row[0]), xml_text(row[1]));
    html_ += "</table>";
  }
  void table(const std::vector<std::string>& heads, const Rows& rows, std::string_view none) {
    if (rows.empty()) {
      html_ += fmt::format("<p class='none'>{}</p>", xml_text(none));
      return;
    }
    html_ += "<table><tr>";
    for (const auto& head : heads) html_ += fmt::format("<th>{}</th>", xml_text(head));
    html_ += "</tr>";
    for (const auto& row : rows) {
      html_ += "<tr>";
      for (const auto& cell : row) html_ += fmt::format("<td>{}</td>", xml_text(cell));
      html_ += "</tr>";
    }
    html_ += "</table>";
  }
  void chart(const Chart& chart) { html_ += to_svg(chart); }
  std::string end() { return html_ + "</body></html>\n"; }

 private:
  std::string html_;
};

Rows rows_of(const json::array& items, const std::vector<std::string>& paths) {
  Rows out;
  for (const auto& item : items) {
    auto& row = out.emplace_back();
    for (const auto& path : paths) row.push_back(words(item, path));
  }
  return out;
}

// The columns that moved most, over the windows that were looked at.
Chart drift_chart(const json::value& monitor) {
  std::map<std::string, Line> lines;
  std::map<std::string, double> most;
  const auto& windows = list(monitor, "windows");
  for (std::size_t i = windows.size(); i > 0; --i) {  // the newest stand first
    const auto& window = windows[i - 1];
    for (const auto& column : list(window, "columns")) {
      const auto* index = at(column, "distances.psi");
      if (!index || !index->is_number()) continue;
      const auto name = words(column, "column");
      auto& line = lines[name];
      line.name = name;
      line.x.push_back(static_cast<double>(windows.size() - i));
      line.y.push_back(index->to_number<double>());
      most[name] = std::max(most[name], line.y.back());
    }
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, psi] : most) order.emplace_back(-psi, name);
  std::sort(order.begin(), order.end());
  Chart out{"population stability index of the columns that moved most, by window", "window", {}, false};
  for (std::size_t i = 0; i < std::min(order.size(), kLinesMax); ++i) out.lines.push_back(lines[order[i].second]);
  return out;
}

// Metrics of the run: those of the whole, and those of slices, NAME/COLUMN/VALUE, which stand in tables of their own.
void add_metrics(Page& page, const json::value& all) {
  page.section("How good it is");
  Rows metrics;
  std::map<std::string, Rows> slices;  // by column
  const auto* found = at(all, "run.metrics");
  const auto* logged = found && found->is_object() ? &found->get_object() : nullptr;
  const auto value_of = [&](const std::string& key) -> std::string {
    const auto* point = logged->if_contains(key);
    return point ? words(*point, "value") : "";
  };
  for (const auto& [name, point] : logged ? *logged : json::object()) {
    const std::string key(name);
    if (key.ends_with("_low") || key.ends_with("_high") || key.starts_with("system/")) continue;
    const auto low = value_of(key + "_low"), high = value_of(key + "_high");
    const auto interval = low.empty() || high.empty() ? "" : fmt::format("{} to {}", low, high);
    const auto parts = split(key, '/');
    if (parts.size() == 3)
      slices[std::string(parts[1])].push_back(
          {std::string(parts[0]), std::string(parts[2]), words(point, "value"), interval});
    else
      metrics.push_back({key, words(point, "value"), interval});
  }
  page.table({"Metric", "Value", "95 % interval"}, metrics, "Its run logged no metrics.");
  for (const auto& [column, rows] : slices) {
    page.section("By " + column);
    page.table({"Metric", "Slice", "Value", "95 % interval"}, rows, "");
  }
}

// A promotion with what gates, checks and people said.
void add_evidence(Page& page, const json::value& promotion) {
  page.facts({{"Promotion", fmt::format("{}: version {} became {}", words(promotion, "id"), words(promotion, "version"),
                                        words(promotion, "alias"))},
              {"State", words(promotion, "state")},
              {"Asked by", words(promotion, "asked_by")},
              {"Decided by", words(promotion, "decided_by")},
              {"Why", words(promotion, "why")},
              {"Pipeline", words(promotion, "evidence.pipeline")},
              {"Run of it", words(promotion, "evidence.pipeline_run")},
              {"Begun by", words(promotion, "evidence.cause")}});
  Rows said;
  if (const auto* gates = at(promotion, "evidence.gates"); gates && gates->is_object())
    for (const auto& [gate, outcome] : gates->get_object())
      for (const auto& line : list(outcome, "evidence")) said.push_back({"gate " + std::string(gate), words(&line)});
  if (const auto* checks = at(promotion, "evidence.checks"); checks && checks->is_object())
    for (const auto& [step, outcome] : checks->get_object())
      said.push_back({words(outcome, "kind") + " " + std::string(step), words(outcome, "why")});
  if (said.empty() && at(promotion, "evidence")) said.push_back({"evidence", words(promotion, "evidence")});
  if (!said.empty()) page.table({"Evidence", "What it said"}, said, "");
}

}  // namespace

std::string report_page(const json::object& report) {
  const json::value all = report;
  Page page(fmt::format("Model {}, version {}", words(all, "model.model.name"), words(all, "version.version.version")));
  page.text(fmt::format("As of {}.", words(all, "made")));
  page.facts({{"What it is", words(all, "model.model.description")},
              {"Responsible", words(all, "model.model.tags.owner").empty() ? words(all, "model.model.created_by")
                                                                           : words(all, "model.model.tags.owner")},
              {"Aliases", words(all, "version.version.aliases")},
              {"Made by", words(all, "version.version.created_by")},
              {"Run", words(all, "version.version.origin_run")},
              {"Limits", words(all, "model.model.tags.limits")},
              {"Tags", words(all, "model.model.tags")},
              {"Signed with", words(all, "version.manifest.public_key")}});

  add_metrics(page, all);

  page.section("What it was made from");
  page.table({"From", "How", "To"}, rows_of(list(all, "lineage.edges"), {"from", "how", "to"}), "No lineage is known.");
  Rows parameters;
  if (const auto* found = at(all, "run.params"); found && found->is_object())
    for (const auto& [name, value] : found->get_object()) parameters.push_back({std::string(name), words(&value)});
  page.table({"Parameter", "Value"}, parameters, "Its run logged no parameters.");

  page.section("Approvals and evidence");
  page.table({"Time", "Alias", "Version", "By", "Why"},
             rows_of(list(all, "history.changes"), {"at", "alias", "version", "by", "why"}), "It was never promoted.");
  for (const auto& promotion : list(all, "history.promotions")) add_evidence(page, promotion);

  page.section("Where it is served");
  Rows served;
  for (const auto& endpoint : list(all, "endpoints"))
    for (const auto& variant : list(endpoint, "variants"))
      served.push_back({words(endpoint, "name"), words(variant, "name"), words(variant, "model"),
                        words(variant, "version"), words(variant, "weight")});
  page.table({"Endpoint", "Variant", "Model", "Version", "Weight"}, served, "Nowhere.");

  for (const auto& monitor : list(all, "monitors")) {
    page.section("Monitor " + words(monitor, "name"));
    page.table({"Since", "Ended", "Kind", "Column", "What", "Diagnosis"},
               rows_of(list(monitor, "findings"), {"since", "ended", "kind", "column", "text", "diagnosis"}),
               "Nothing was found.");
    const auto chart = drift_chart(monitor);
    if (!chart.lines.empty()) page.chart(chart);
  }
  page.section("What happened");
  page.table({"Time", "What", "Thing", "Why", "Look at it with"},
             rows_of(list(all, "timeline"), {"time", "what", "thing", "why", "look"}), "Nothing yet.");
  if (!list(all, "not_shown").empty()) {
    page.section("Not shown");
    for (const auto& why : list(all, "not_shown")) page.text(words(&why));
  }
  return page.end();
}

namespace {

// A finding that ended because another one of the same kind and column says more (numbers beyond the range turned out
// to be of another unit): what is wrong is not over.
bool goes_on(const json::value& all, const json::value& ended) {
  const auto end = words(ended, "ended");
  const auto& findings = list(all, "findings");
  return std::any_of(findings.begin(), findings.end(), [&](const json::value& other) {
    for (const char* same : {"monitor", "variant", "version", "column", "kind"})
      if (words(other, same) != words(ended, same)) return false;
    const auto its_end = words(other, "ended");
    return words(other, "found") <= end && (its_end.empty() || its_end > end);
  });
}

}  // namespace

json::array timeline_of(const json::object& parts) {
  const json::value all = parts;
  std::vector<std::pair<std::string, json::object>> happened;  // by time
  const auto add = [&](const std::string& time, std::string what, std::string thing, std::string why,
                       std::string look) {
    if (time.empty()) return;
    happened.emplace_back(time,
                          json::object{{"time", time}, {"what", what}, {"thing", thing}, {"why", why}, {"look", look}});
  };
  for (const auto& e : list(all, "alerts"))
    add(words(e, "at"), "alert " + words(e, "what"), fmt::format("alert {} of {}", words(e, "alert"), words(e, "rule")),
        words(e, "text"), "falaj alerts show " + words(e, "alert"));
  for (const auto& f : list(all, "findings")) {
    const auto thing = fmt::format("{} {} of {} version {}", words(f, "endpoint"), words(f, "column"),
                                   words(f, "variant"), words(f, "version"));
    const auto diagnosis = words(f, "diagnosis");
    const auto look = fmt::format("falaj monitor findings {} --all", words(f, "monitor"));
    add(words(f, "found"), "found " + words(f, "kind"), thing,
        words(f, "text") + (diagnosis.empty() ? "" : "; " + diagnosis), look);
    if (!goes_on(all, f)) add(words(f, "ended"), words(f, "kind") + " is over", thing, "", look);
  }
  for (const auto& r : list(all, "loop"))
    add(words(r, "at"), "policy " + words(r, "what"), "policy " + words(r, "policy"), words(r, "why"),
        "falaj loop show " + words(r, "policy"));
  for (const auto& r : list(all, "runs")) {
    const auto thing = fmt::format("run {} of pipeline {}", words(r, "number"), words(r, "pipeline"));
    const auto look = fmt::format("falaj pipeline show {}/{}", words(r, "pipeline"), words(r, "number"));
    add(words(r, "created"), "pipeline begun", thing, words(r, "cause"), look);
    add(words(r, "ended"), "pipeline " + words(r, "phase"), thing, words(r, "why"), look);
  }
  if (const auto* endpoints = at(all, "endpoints"); endpoints && endpoints->is_object())
    for (const auto& [name, history] : endpoints->get_object())
      for (const auto& state : list(history, "items"))
        add(words(state, "at"), "served", "endpoint " + std::string(name), words(state, "why"),
            "falaj endpoint history " + std::string(name));
  std::stable_sort(happened.begin(), happened.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  json::array out;
  for (auto& [time, what] : happened) out.push_back(std::move(what));
  return out;
}

}  // namespace falaj::cli
