// SPDX-License-Identifier: Apache-2.0
// what endpoints are asked and answer, compared with what their models were trained on

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "lifecycle/watch/watch.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kWatchedBody{16 * 1024 * 1024};
constexpr std::size_t kBarsMax = 24, kTopValuesMax = 20;
constexpr double kShownShares[] = {0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1};

struct MonitorStreamOut {
  std::string variant;
  std::int64_t version = 0, windows = 0, waiting = 0;
  std::string last, reference;
};
struct FoundOut {
  std::int64_t number = 0;
  std::string monitor, endpoint, variant;
  std::int64_t version = 0;
  std::string column, kind, test, since, found, seen;
  std::optional<std::string> ended;
  std::int64_t window = 0, windows = 0;
  double score = 0, p = 1;
  watch::Distances distances;
  std::optional<watch::Measured> measured;
  std::string text, diagnosis;
};
struct MonitorPerformanceOut {
  std::string variant;
  std::int64_t version = 0, windows = 0, waiting = 0, unmatched = 0, late = 0;
  std::string last, reference;
};
struct PerformanceWindowOut {
  std::string variant;
  std::int64_t version = 0, number = 0;
  std::string from, until;
  std::int64_t labels = 0;
  std::vector<watch::MetricSeen> metrics;
};
struct PerformanceOut {
  std::vector<PerformanceWindowOut> items;
};
struct MonitorOut {
  std::string name;
  watch::MonitorSpec spec;
  std::vector<MonitorStreamOut> streams;
  std::vector<MonitorPerformanceOut> performance;
  std::vector<FoundOut> findings;
};
struct MonitorsOut {
  std::vector<MonitorOut> items;
};
struct FoundIn {
  bool all = false;
  std::string column, kind, endpoint;
  std::int64_t limit = 100;
};
struct FoundListOut {
  std::vector<FoundOut> items;
};
struct WindowsIn {
  std::int64_t limit = 20;
};
struct WindowOut {
  std::string variant;
  std::int64_t version = 0, number = 0;
  std::string from, until;
  std::int64_t rows = 0, looked_at = 0;
  std::vector<watch::ColumnSeen> columns;
};
struct WindowsOut {
  std::vector<WindowOut> items;
};
struct ColumnIn {
  std::string variant;
  std::int64_t version = 0;
  std::optional<std::int64_t> window;
};
struct SideOut {
  std::int64_t rows = 0, missing = 0;
  double effect = 1;
};
struct QuantileOut {
  double share = 0;
  std::optional<double> reference, window;
};
struct BarOut {
  double from = 0, until = 0, reference = 0, window = 0;
};
struct ValueOut {
  std::string value;
  double reference = 0, window = 0;
};
struct WatchedColumnOut {
  std::string column, variant;
  std::int64_t version = 0, window = 0;
  std::string from, until, compared_with;
  SideOut reference, seen;
  watch::Distances distances;
  std::vector<QuantileOut> quantiles;
  std::vector<BarOut> bars;
  std::vector<ValueOut> values;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<watch::NamedSegment> {
  using T = watch::NamedSegment;
  static constexpr std::string_view name = "NamedWatchedSegment";
  static Fields fields() {
    return {field("segment", &T::segment, "Its name, by which it is taken once.").required().length(1, 128),
            field("watched", &T::watched, "What was seen.").required()};
  }
};
template <>
struct Shape<watch::WatchedBatch> {
  using T = watch::WatchedBatch;
  static constexpr std::string_view name = "WatchedBatch";
  static Fields fields() {
    return {field("tenant", &T::tenant, "Of the endpoint.").required().length(1, 63),
            field("project", &T::project, "Of the endpoint.").required().length(1, 63),
            field("endpoint", &T::endpoint, "Its name.").required().length(1, 63),
            field("segments", &T::segments, "What was seen of it.").required().length(1, 1000)};
  }
};
template <>
struct Shape<MonitorStreamOut> {
  using T = MonitorStreamOut;
  static constexpr std::string_view name = "MonitorStream";
  static Fields fields() {
    return {field("variant", &T::variant, "Who answered."),
            field("version", &T::version, "Of its model."),
            field("windows", &T::windows, "That were looked at."),
            field("waiting", &T::waiting, "Rows of the next window."),
            field("last", &T::last, "The newest row."),
            field("reference", &T::reference, "What they are compared with, or why with nothing yet.")};
  }
};
template <>
struct Shape<FoundOut> {
  using T = FoundOut;
  static constexpr std::string_view name = "Finding";
  static Fields fields() {
    return {
        field("number", &T::number, "Its own for ever."),
        field("monitor", &T::monitor, "Who found it."),
        field("endpoint", &T::endpoint, "What is watched."),
        field("variant", &T::variant, "Who answered."),
        field("version", &T::version, "Of its model."),
        field("column", &T::column,
              "An input, an output with out_ before it, or a metric of how well the model does; empty: the endpoint."),
        field("kind", &T::kind, "drift, quality, performance or skew."),
        field("test", &T::test, "drift, missing, range or silence; of performance metric, adwin or page_hinkley."),
        field("since", &T::since, "When what shows it began."),
        field("found", &T::found, "When it was found."),
        field("seen", &T::seen, "When it was seen last."),
        field("ended", &T::ended, "Absent: it stands."),
        field("window", &T::window, "Number of the newest window that shows it."),
        field("windows", &T::windows, "So many together show it."),
        field("score", &T::score, "How much less likely by chance than it may be, in powers of ten."),
        field("p", &T::p, "Chance of such a distance in these windows, were nothing different."),
        field("distances", &T::distances, "From the reference."),
        field("measured", &T::measured, "How well the model did; of kind performance."),
        field("text", &T::text, "What is seen."),
        field("diagnosis", &T::diagnosis, "What it may come from.")};
  }
};
template <>
struct Shape<MonitorPerformanceOut> {
  using T = MonitorPerformanceOut;
  static constexpr std::string_view name = "MonitorPerformanceStream";
  static Fields fields() {
    return {field("variant", &T::variant, "Who answered."),
            field("version", &T::version, "Of its model."),
            field("windows", &T::windows, "That were judged."),
            field("waiting", &T::waiting, "Labelled predictions of the next window."),
            field("unmatched", &T::unmatched, "Labels of predictions that the log does not have, or has no answer of."),
            field("late", &T::late, "Labels that came when their time had been judged, and count in a later window."),
            field("last", &T::last, "The newest prediction that was judged."),
            field("reference", &T::reference, "What they are compared with, or why with nothing yet.")};
  }
};
template <>
struct Shape<PerformanceWindowOut> {
  using T = PerformanceWindowOut;
  static constexpr std::string_view name = "PerformanceWindow";
  static Fields fields() {
    return {field("variant", &T::variant, "Who answered."),
            field("version", &T::version, "Of its model."),
            field("number", &T::number, "Of its variant and version, from 0."),
            field("from", &T::from, "Its first prediction."),
            field("until", &T::until, "Its last."),
            field("labels", &T::labels, "Labelled predictions in it."),
            field("metrics", &T::metrics, "How well the model did.")};
  }
};
template <>
struct Shape<PerformanceOut> {
  static constexpr std::string_view name = "PerformanceWindows";
  static Fields fields() { return {field("items", &PerformanceOut::items, "Newest first.")}; }
};
template <>
struct Shape<MonitorOut> {
  using T = MonitorOut;
  static constexpr std::string_view name = "MonitorView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."), field("spec", &T::spec, "As it is declared."),
            field("streams", &T::streams, "What it has seen, by variant and version."),
            field("performance", &T::performance, "How far it is with labels, by variant and version."),
            field("findings", &T::findings, "Those that stand, newest first.")};
  }
};
template <>
struct Shape<MonitorsOut> {
  static constexpr std::string_view name = "MonitorViews";
  static Fields fields() { return {field("items", &MonitorsOut::items, "All of the project.")}; }
};
template <>
struct Shape<FoundIn> {
  using T = FoundIn;
  static constexpr std::string_view name = "FindingsQuery";
  static Fields fields() {
    return {field("all", &T::all, "Also those that ended."),
            field("column", &T::column, "Only of this column.").length(0, 512),
            field("kind", &T::kind, "Only of this kind.").length(0, 32),
            field("endpoint", &T::endpoint, "Only of this endpoint.").length(0, 63),
            field("limit", &T::limit, "Most items.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<FoundListOut> {
  static constexpr std::string_view name = "Findings";
  static Fields fields() { return {field("items", &FoundListOut::items, "Newest first.")}; }
};
template <>
struct Shape<WindowsIn> {
  static constexpr std::string_view name = "WindowsQuery";
  static Fields fields() { return {field("limit", &WindowsIn::limit, "Most items.").range(1, kPageItemsMax)}; }
};
template <>
struct Shape<WindowOut> {
  using T = WindowOut;
  static constexpr std::string_view name = "MonitorWindowView";
  static Fields fields() {
    return {field("variant", &T::variant, "Who answered."),
            field("version", &T::version, "Of its model."),
            field("number", &T::number, "Of its variant and version, from 0."),
            field("from", &T::from, "Its first row."),
            field("until", &T::until, "Its last row."),
            field("rows", &T::rows, "That were answered."),
            field("looked_at", &T::looked_at, "Of them."),
            field("columns", &T::columns, "What was seen.")};
  }
};
template <>
struct Shape<WindowsOut> {
  static constexpr std::string_view name = "MonitorWindows";
  static Fields fields() { return {field("items", &WindowsOut::items, "Newest first.")}; }
};
template <>
struct Shape<ColumnIn> {
  using T = ColumnIn;
  static constexpr std::string_view name = "ColumnQuery";
  static Fields fields() {
    return {field("variant", &T::variant, "Of the endpoint; the last that was asked when absent.").length(0, 63),
            field("version", &T::version, "Of its model; 0: any.").range(0, std::int64_t{1} << 53),
            field("window", &T::window, "Its number; the newest when absent.").range(0, std::int64_t{1} << 53)};
  }
};
template <>
struct Shape<SideOut> {
  using T = SideOut;
  static constexpr std::string_view name = "ColumnSide";
  static Fields fields() {
    return {field("rows", &T::rows, "In all."), field("missing", &T::missing, "Of them without a value."),
            field("effect", &T::effect, "So many rows are worth one that is independent of the others.")};
  }
};
template <>
struct Shape<QuantileOut> {
  using T = QuantileOut;
  static constexpr std::string_view name = "QuantilePair";
  static Fields fields() {
    return {field("share", &T::share, "Of the values that are not above."),
            field("reference", &T::reference, "In the reference."), field("window", &T::window, "Now.")};
  }
};
template <>
struct Shape<BarOut> {
  using T = BarOut;
  static constexpr std::string_view name = "HistogramBar";
  static Fields fields() {
    return {field("from", &T::from, "Above this"), field("until", &T::until, "up to this."),
            field("reference", &T::reference, "Share of the reference."), field("window", &T::window, "Share now.")};
  }
};
template <>
struct Shape<ValueOut> {
  using T = ValueOut;
  static constexpr std::string_view name = "ValueShares";
  static Fields fields() {
    return {field("value", &T::value, "A text."), field("reference", &T::reference, "Its share then."),
            field("window", &T::window, "And now.")};
  }
};
template <>
struct Shape<WatchedColumnOut> {
  using T = WatchedColumnOut;
  static constexpr std::string_view name = "ColumnComparison";
  static Fields fields() {
    return {field("column", &T::column, "Its name."),
            field("variant", &T::variant, "Who answered."),
            field("version", &T::version, "Of its model."),
            field("window", &T::window, "Number of the window."),
            field("from", &T::from, "Its first row."),
            field("until", &T::until, "Its last row."),
            field("compared_with", &T::compared_with, "The reference, in words."),
            field("reference", &T::reference, "Its rows."),
            field("seen", &T::seen, "The window's."),
            field("distances", &T::distances, "Between the two."),
            field("quantiles", &T::quantiles, "Of numbers."),
            field("bars", &T::bars, "Of numbers: bins of equal width."),
            field("values", &T::values, "Of texts.")};
  }
};

}  // namespace falaj

namespace falaj::api {
namespace {

using Holds = traffic::ColumnSketch::Holds;

FoundOut out_of(const watch::StandingFinding& one) {
  FoundOut out;
  out.number = one.number;
  out.monitor = one.monitor;
  out.endpoint = one.endpoint;
  out.variant = one.variant;
  out.version = one.version;
  out.column = one.finding.column;
  out.kind = one.finding.kind;
  out.test = one.finding.test;
  out.since = format_time(one.finding.since_us);
  out.found = format_time(one.first_us);
  out.seen = format_time(one.seen_us);
  if (one.ended_us) out.ended = format_time(*one.ended_us);
  out.window = one.finding.window;
  out.windows = one.finding.windows;
  out.score = one.finding.score;
  out.p = one.finding.p;
  out.distances = one.finding.distances;
  out.measured = one.finding.measured;
  out.text = one.finding.text;
  out.diagnosis = one.finding.diagnosis;
  return out;
}

MonitorOut out_of(const watch::MonitorSeen& seen) {
  MonitorOut out{seen.name, seen.spec, {}, {}, {}};
  for (const auto& s : seen.streams)
    out.streams.push_back({s.variant, s.version, s.windows, s.waiting, format_time(s.last_us), s.reference});
  for (const auto& p : seen.performance)
    out.performance.push_back({p.variant, p.version, p.windows, p.waiting, p.unmatched, p.late,
                               p.windows > 0 ? format_time(p.last_us) : "", p.reference});
  for (const auto& finding : seen.findings) out.findings.push_back(out_of(finding));
  return out;
}

FoundListOut found(watch::Watch& watch, Call& call, const FoundIn& in, std::string monitor) {
  watch::FindingFilter filter;
  filter.monitor = std::move(monitor);
  filter.endpoint = in.endpoint;
  filter.column = in.column;
  filter.kind = in.kind;
  filter.standing = !in.all;
  filter.limit = static_cast<std::size_t>(in.limit);
  FoundListOut out;
  for (const auto& one : watch.findings(project_of(call), filter)) out.items.push_back(out_of(one));
  return out;
}

SideOut side_of(const traffic::ColumnSketch& sketch, double effect) {
  return {static_cast<std::int64_t>(sketch.rows), static_cast<std::int64_t>(sketch.missing), effect};
}

void compare_numbers(WatchedColumnOut& out, const stats::Quantiles& was, const stats::Quantiles& is) {
  for (const double share : kShownShares) {
    QuantileOut one{share, std::nullopt, std::nullopt};
    if (was.count() > 0) one.reference = was.quantile(share);
    if (is.count() > 0) one.window = is.quantile(share);
    out.quantiles.push_back(one);
  }
  // What lies far out would press all others into one bar.
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto* side : {&was, &is})
    if (side->count() > 0) low = std::min(low, side->quantile(0.01)), high = std::max(high, side->quantile(0.99));
  if (!(low < high)) return;
  const double width = (high - low) / kBarsMax;
  for (std::size_t i = 0; i < kBarsMax; ++i) {
    BarOut bar{low + width * static_cast<double>(i), low + width * static_cast<double>(i + 1), 0, 0};
    const auto share = [&](const stats::Quantiles& q) {
      return q.count() == 0 ? 0 : (i + 1 == kBarsMax ? 1 : q.rank(bar.until)) - (i == 0 ? 0 : q.rank(bar.from));
    };
    bar.reference = share(was);
    bar.window = share(is);
    out.bars.push_back(bar);
  }
}

void compare_texts(WatchedColumnOut& out, const stats::Frequent& was, const stats::Frequent& is) {
  std::vector<std::string> names;
  for (const auto* side : {&is, &was})
    for (const auto& entry : side->top(kTopValuesMax))
      if (std::find(names.begin(), names.end(), entry.text) == names.end()) names.push_back(entry.text);
  const auto share = [](const stats::Frequent& f, const std::string& text) {
    return f.total() == 0 ? 0 : static_cast<double>(f.counted(text)) / static_cast<double>(f.total());
  };
  for (auto& name : names) {
    if (out.values.size() == kTopValuesMax) break;
    out.values.push_back({name, share(was, name), share(is, name)});
  }
}

WatchedColumnOut out_of(const std::string& column, const watch::ColumnPair& pair) {
  WatchedColumnOut out;
  out.column = column;
  out.variant = pair.variant;
  out.version = pair.version;
  out.window = pair.window;
  out.from = format_time(pair.from_us);
  out.until = format_time(pair.until_us);
  out.compared_with = pair.is;
  out.reference = side_of(pair.reference.sketch, pair.reference.effect);
  out.seen = side_of(pair.seen, pair.reference.effect);
  out.distances = watch::distances_of(pair.reference.sketch, pair.seen);
  if (pair.seen.holds == Holds::numbers) compare_numbers(out, pair.reference.sketch.numbers, pair.seen.numbers);
  if (pair.seen.holds == Holds::texts) compare_texts(out, pair.reference.sketch.texts, pair.seen.texts);
  return out;
}

}  // namespace

void add_watch_routes(Routes& routes, Platform& platform) {
  auto& watch = platform.watch;
  const auto one = Permission::of("monitor.read", "{scope}/monitor/{name}");
  const auto all = Permission::of("monitor.read", "{scope}");
  const auto none = BodyLimit::none();
  routes.add<watch::WatchedBatch, Nothing>(
      {Method::post, "/v1/serving/watched", Permission::of("serving.follow", "/"), kWatchedBody, Audit::read(),
       Place::worker, "What a serving program saw of an endpoint that is watched."},
      [&watch](Call&, const watch::WatchedBatch& in) { watch.accept(in); });
  routes.add<Nothing, MonitorsOut>(
      {Method::get, "/v1/monitors", all, none, Audit::read(), Place::worker, "Monitors of a project, and what stands."},
      [&watch](Call& call, const Nothing&) {
        MonitorsOut out;
        const resource::Authorise may = [&call](std::string_view action, const iam::Scope& resource) {
          return call.allows(action, resource) ? std::nullopt : std::optional<std::string>("not allowed");
        };
        for (const auto& seen : watch.monitors(project_of(call), may)) out.items.push_back(out_of(seen));
        return out;
      });
  routes.add<FoundIn, FoundListOut>(
      {Method::get, "/v1/findings", all, none, Audit::read(), Place::worker, "What monitors of a project found."},
      [&watch](Call& call, const FoundIn& in) { return found(watch, call, in, ""); });
  routes.add<Nothing, MonitorOut>(
      {Method::get, "/v1/monitors/{name}", one, none, Audit::read(), Place::worker,
       "A monitor: what it has seen, and what stands."},
      [&watch](Call& call, const Nothing&) { return out_of(watch.monitor(project_of(call), call.parameter("name"))); });
  routes.add<FoundIn, FoundListOut>({Method::get, "/v1/monitors/{name}/findings", one, none, Audit::read(),
                                     Place::worker, "What a monitor found, newest first."},
                                    [&watch](Call& call, const FoundIn& in) {
                                      watch.monitor(project_of(call), call.parameter("name"));  // not_found
                                      return found(watch, call, in, call.parameter("name"));
                                    });
  routes.add<WindowsIn, WindowsOut>(
      {Method::get, "/v1/monitors/{name}/windows", one, none, Audit::read(), Place::worker,
       "Windows that a monitor looked at, newest first."},
      [&watch](Call& call, const WindowsIn& in) {
        WindowsOut out;
        for (auto& w : watch.windows(project_of(call), call.parameter("name"), static_cast<std::size_t>(in.limit)))
          out.items.push_back({w.variant, w.version, w.number, format_time(w.from_us), format_time(w.until_us), w.rows,
                               w.looked_at, std::move(w.columns)});
        return out;
      });
  routes.add<WindowsIn, PerformanceOut>(
      {Method::get, "/v1/monitors/{name}/performance", one, none, Audit::read(), Place::worker,
       "How well models did, in windows of labelled predictions, newest first."},
      [&watch](Call& call, const WindowsIn& in) {
        PerformanceOut out;
        for (auto& w : watch.performance(project_of(call), call.parameter("name"), static_cast<std::size_t>(in.limit)))
          out.items.push_back({w.variant, w.version, w.number, format_time(w.from_us), format_time(w.until_us),
                               w.labels, std::move(w.metrics)});
        return out;
      });
  routes.add<ColumnIn, WatchedColumnOut>(
      {Method::get, "/v1/monitors/{name}/columns/{column}", one, none, Audit::read(), Place::worker,
       "One column of a window beside its reference."},
      [&watch](Call& call, const ColumnIn& in) {
        const auto column = call.parameter("column");
        return out_of(
            column, watch.column(project_of(call), call.parameter("name"), column, in.variant, in.version, in.window));
      });
}

}  // namespace falaj::api
