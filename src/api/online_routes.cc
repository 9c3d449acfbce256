// SPDX-License-Identifier: Apache-2.0
// features online: read, push, materialise

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/feature_text.h"
#include "api/features.h"
#include "api/page.h"
#include "api/project.h"
#include "api/turn.h"
#include "foundation/base/error.h"
#include "lifecycle/features/online.h"
#include "lifecycle/lookup/values.h"

namespace falaj::api {
namespace {

constexpr int kPassesMax = 2;  // each reads a dataset and sorts it
constexpr std::uint64_t kGetBytesMax = 4 << 20, kPushBytesMax = 16 << 20;

struct GetIn {
  std::string service;
  std::vector<std::string> features;
  json::value entities;
  std::string as_of;
};
struct OnlineColumnOut {
  std::string view, feature, type;
  std::vector<json::value> values;
  std::vector<std::string> statuses;
  std::vector<std::string> times;
};
struct GetOut {
  std::int64_t entities = 0;
  std::string as_of;
  std::vector<OnlineColumnOut> columns;
};
struct PushIn {
  std::string dataset, source, id, as_of;
  std::vector<json::value> rows;
};
struct PushOut {
  std::string dataset;
  std::int64_t rows = 0, sequence = 0;
  bool again = false;
};
struct FlushIn {
  std::string dataset;
};
struct FlushOut {
  std::string dataset;
  std::optional<std::int64_t> version;
  std::int64_t rows = 0;
};
struct MaterialiseIn {
  std::string view, end;
  bool full = false;
};
struct ViewOut {
  std::string view, entity, dataset, problem;
  std::int64_t revision = 0;
  bool personal = false, online = false, running = false, used = false, takes_pushes = false;
  double done = 0;
  std::optional<std::int64_t> version, newest_version, lag_us, waiting_rows;
  std::string end;
  std::vector<std::string> features;
  std::vector<features::Measured> measured;
};
struct ViewsOut {
  std::vector<ViewOut> views;
};
struct RemovedOut {
  std::int64_t removed = 0;
};
struct ViewChecksQuery {
  std::int64_t limit = kPageItems;
};
struct ViewChecksOut {
  std::vector<data::CheckResult> checks;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<GetIn> {
  static constexpr std::string_view name = "FeatureQuestion";
  static Fields fields() {
    return {
        field("service", &GetIn::service, "The FeatureService whose features are wanted; or name them in features.")
            .length(0, 63),
        field("features", &GetIn::features, "VIEW:FEATURE, VIEW:* or VIEW@REVISION:FEATURE.").length(0, 1000),
        field(
            "entities", &GetIn::entities,
            "By the name of each key column, and of each field of the request, a list with one value for each entity: "
            "{\"origin\": [\"SEA\", \"LAX\"]}.")
            .required(),
        field("as_of", &GetIn::as_of, "When; now if absent. Not before the last write.").length(0, 40)};
  }
};
template <>
struct Shape<OnlineColumnOut> {
  static constexpr std::string_view name = "FeatureColumn";
  static Fields fields() {
    return {field("view", &OnlineColumnOut::view, "Of which view."),
            field("feature", &OnlineColumnOut::feature, "Which feature."),
            field("type", &OnlineColumnOut::type, "What it holds."),
            field("values", &OnlineColumnOut::values, "One for each entity; null where there is none."),
            field("statuses", &OnlineColumnOut::statuses, "present, null, missing or expired."),
            field("times", &OnlineColumnOut::times,
                  "When the newest row happened; empty for windows and what is missing.")};
  }
};
template <>
struct Shape<GetOut> {
  static constexpr std::string_view name = "FeatureAnswer";
  static Fields fields() {
    return {field("entities", &GetOut::entities, "How many were asked for."),
            field("as_of", &GetOut::as_of, "As of when."),
            field("columns", &GetOut::columns, "One for each feature, in the order asked for.")};
  }
};
template <>
struct Shape<PushIn> {
  static constexpr std::string_view name = "FeaturePush";
  static Fields fields() {
    return {field("source", &PushIn::source, "The PushSource that takes them; or name its dataset.").length(0, 63),
            field("dataset", &PushIn::dataset, "The dataset whose rows these are.").length(0, 63),
            field("rows", &PushIn::rows, "Objects with the dataset's columns.").required().length(1, 10'000),
            field("id", &PushIn::id, "A push of the same id within a day is the same push, and counts once.")
                .length(0, 200),
            field("as_of", &PushIn::as_of, "What the time is, to play history back; now if absent.").length(0, 40)};
  }
};
template <>
struct Shape<PushOut> {
  static constexpr std::string_view name = "PushedRows";
  static Fields fields() {
    return {field("dataset", &PushOut::dataset, "Whose rows they are."), field("rows", &PushOut::rows, "How many."),
            field("sequence", &PushOut::sequence, "Counts up with each push to the dataset."),
            field("again", &PushOut::again, "It had been taken before.")};
  }
};
template <>
struct Shape<FlushIn> {
  static constexpr std::string_view name = "FlushPushed";
  static Fields fields() {
    return {field("dataset", &FlushIn::dataset, "Whose pushed rows become a version.")
                .required()
                .text({is_name, kNameRule})};
  }
};
template <>
struct Shape<FlushOut> {
  static constexpr std::string_view name = "FlushedRows";
  static Fields fields() {
    return {field("dataset", &FlushOut::dataset, "The dataset."),
            field("version", &FlushOut::version, "The version they became a part of; absent: there were none."),
            field("rows", &FlushOut::rows, "That version's rows.")};
  }
};
template <>
struct Shape<MaterialiseIn> {
  static constexpr std::string_view name = "Materialise";
  static Fields fields() {
    return {field("view", &MaterialiseIn::view,
                  "The feature view; VIEW@REVISION what it was at that, for services that pin it.")
                .required()
                .text({features::is_view_name, features::kViewNameRule}),
            field("end", &MaterialiseIn::end, "Events up to then; up to now if absent.").length(0, 40),
            field("full", &MaterialiseIn::full, "From the beginning, not only what is new.")};
  }
};
template <>
struct Shape<ViewOut> {
  static constexpr std::string_view name = "FeatureViewStatus";
  static Fields fields() {
    return {field("view", &ViewOut::view, "The feature view."),
            field("revision", &ViewOut::revision, "Which revision of it."),
            field("entity", &ViewOut::entity, "What it is about."),
            field("dataset", &ViewOut::dataset, "What it is made of."),
            field("features", &ViewOut::features, "Their names."),
            field("personal", &ViewOut::personal, "Its rows are about people: reads are recorded."),
            field("online", &ViewOut::online, "It can be read."),
            field("used", &ViewOut::used, "Declared so, or named."),
            field("takes_pushes", &ViewOut::takes_pushes, "Pushed rows are known at once, each looked at alone."),
            field("version", &ViewOut::version, "The dataset's version that is online."),
            field("newest_version", &ViewOut::newest_version, "The dataset's newest."),
            field("end", &ViewOut::end, "Events up to then are online, and what was pushed."),
            field("lag_us", &ViewOut::lag_us, "How long ago that is."),
            field("waiting_rows", &ViewOut::waiting_rows, "Pushed rows that are in no version yet."),
            field("running", &ViewOut::running, "A pass is under way."),
            field("done", &ViewOut::done, "How far, 0 to 1."),
            field("problem", &ViewOut::problem, "Why the last pass failed."),
            field("measured", &ViewOut::measured, "Its features over all entities, as of the last full pass.")};
  }
};
template <>
struct Shape<ViewsOut> {
  static constexpr std::string_view name = "FeatureViewStatuses";
  static Fields fields() { return {field("views", &ViewsOut::views, "All of a project.")}; }
};
template <>
struct Shape<ViewChecksQuery> {
  static constexpr std::string_view name = "FeatureViewChecksQuery";
  static Fields fields() { return {field("limit", &ViewChecksQuery::limit, "Most results.").range(1, kPageItemsMax)}; }
};
template <>
struct Shape<ViewChecksOut> {
  static constexpr std::string_view name = "FeatureViewChecks";
  static Fields fields() {
    return {field("checks", &ViewChecksOut::checks, "Last first; of pushed rows only those that did not hold.")};
  }
};
template <>
struct Shape<RemovedOut> {
  static constexpr std::string_view name = "RemovedMeanings";
  static Fields fields() {
    return {field("removed", &RemovedOut::removed, "Of how many earlier definitions the rows were removed.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

std::optional<std::int64_t> time_of(const std::string& text, std::string_view field) {
  if (text.empty()) return std::nullopt;
  const auto value = lookup::from_json(json::value(text), online::Type::timestamp);
  if (!value)
    throw Error(Code::invalid, fmt::format("{}: '{}' must be {}", field, text.substr(0, 40),
                                           lookup::what_is_expected(online::Type::timestamp)));
  return std::get<std::int64_t>(*value);
}

std::string time_text(std::int64_t us) { return std::string(lookup::to_json(us, online::Type::timestamp).as_string()); }

iam::Scope scope_of(const vault::Where& where, const char* kind, const std::string& name) {
  return resource::Key{kind, where.tenant.str(), where.project.str(), name}.scope();
}

// Of the shape of GetOut.
std::string get(Platform& platform, Call& call, const GetIn& in) {
  static constexpr FeatureText::Words kWords{{"present", "null", "missing", "expired"}, "", "", false};
  const auto where = project_of(call);
  const auto wanted = selected(platform, call, where, in.service, in.features);
  const auto entities = entities_of(*wanted, in.entities);
  will_read(platform, call, *wanted, entities.size());
  FeatureText text(*wanted, entities.size(), kWords);
  const auto as_of_us = platform.online.views().get(*wanted, entities, time_of(in.as_of, "as_of"), text);
  constexpr std::size_t kColumnBytes = 128;
  std::size_t columns = 0;
  for (const auto& view : *wanted) columns += view.features.size();
  std::string out;
  out.reserve(text.bytes() + columns * kColumnBytes);
  fmt::format_to(std::back_inserter(out), R"({{"entities":{},"as_of":"{}","columns":[)", entities.size(),
                 time_text(as_of_us));
  std::size_t column = 0;
  for (const auto& view : *wanted)
    for (std::size_t f = 0; f < view.features.size(); ++f, ++column) {
      // Names of views, features and types have nothing to escape.
      out += column ? R"(,{"view":")" : R"({"view":")";
      out += view.from->name;
      out += R"(","feature":")";
      out += view.features[f];
      out += R"(","type":")";
      out += table::name(static_cast<table::Type>(view.places[f].type));
      out += R"(","values":)";
      text.append_values(out, column);
      out += R"(,"statuses":)";
      text.append_statuses(out, column);
      out += R"(,"times":)";
      text.append_times(out, column);
      out += '}';
    }
  out += "]}";
  return out;
}

ViewOut status_of(Platform& platform, const features::Definition& d, const std::optional<features::OnlineView>& row,
                  const vault::Where& where) {
  ViewOut out;
  out.view = d.name;
  out.revision = d.revision;
  out.entity = d.spec.entity;
  out.dataset = d.spec.dataset;
  out.features = features::names_of(d.spec);
  out.personal = d.personal();
  out.used = true;
  out.takes_pushes = d.row_by_row && d.dataset.key.empty();
  try {
    out.newest_version = platform.datasets.version(where, out.dataset, std::nullopt).number;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  if (!row) return out;
  out.problem = row->problem;
  out.measured = row->measured;
  for (auto& feature : out.measured) feature.sketch.clear();
  out.running = row->running.has_value();
  out.done = platform.online.materialiser().progress(row->meaning);
  out.waiting_rows = platform.online.pushes().waiting(where, out.dataset);
  if (!row->done) return out;
  out.online = true;
  out.version = row->done->version;
  out.end = time_text(row->done->end_us);
  out.lag_us = platform.clock.wall().count() - row->done->end_us;
  return out;
}

ViewsOut list(Platform& platform, Call& call) {
  const auto where = project_of(call);
  ViewsOut out;
  auto rows = platform.online.views().list(where);
  resource::ListOptions options{where.tenant.str(), where.project.str(), "", "", 1000};
  const auto may_read = [&](std::string_view, const iam::Scope& scope) -> std::optional<std::string> {
    return call.allows("feature.read", scope) ? std::nullopt : std::optional<std::string>("not allowed");
  };
  do {
    const auto page = platform.resources.list("FeatureView", options, may_read);
    for (const auto& stored : page.items) {
      const auto& name = stored.resource.metadata.name;
      try {
        const auto definition = platform.online.definitions().view(where, name);
        const auto found =
            std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.meaning == definition->meaning; });
        out.views.push_back(
            status_of(platform, *definition, found == rows.end() ? std::nullopt : std::optional(*found), where));
        if (found != rows.end()) rows.erase(found);
      } catch (const Error& e) {
        ViewOut broken;
        broken.view = name;
        broken.revision = stored.revision;
        broken.problem = e.what();
        out.views.push_back(broken);
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  // What earlier definitions left.
  for (const auto& row : rows) {
    if (!call.allows("feature.read", scope_of(where, "FeatureView", row.view))) continue;
    ViewOut old;
    if (const auto definition = platform.online.views().definition_of(row)) {
      old = status_of(platform, *definition, row, where);
    } else {
      old.view = row.view;
      old.revision = row.revision;
      old.dataset = row.dataset;
      old.online = row.done.has_value();
      if (row.done) old.version = row.done->version;
    }
    old.used = platform.online.is_used(row);
    out.views.push_back(old);
  }
  return out;
}

}  // namespace

std::shared_ptr<const features::Selection> selected(Platform& platform, Call& call, const vault::Where& where,
                                                    const std::string& service, const std::vector<std::string>& names) {
  if (service.empty() == names.empty())
    throw Error(Code::invalid, "features: name either a service or the features, not both");
  auto& definitions = platform.online.definitions();
  if (!service.empty()) call.require("feature.read", scope_of(where, "FeatureService", service));
  // Before anything is looked up: whoever may not read a view is not told whether there is one.
  std::string allowed;  // the view that was asked about last: many features of one are asked for together
  for (const auto& name : names) {
    if (!allowed.empty() && name.starts_with(allowed) && name[allowed.size()] == ':') continue;
    auto named = features::parse_feature_name(name);
    if (!named) continue;
    call.require("feature.read", scope_of(where, "FeatureView", named->view));
    allowed = std::move(named->view);
  }
  auto wanted = service.empty() ? definitions.select(where, names) : definitions.select_service(where, service);
  bool personal = false;
  for (const auto& view : *wanted) {
    call.require("feature.read", scope_of(where, "FeatureView", view.from->name));
    personal |= view.from->personal();
  }
  if (personal) {
    call.will_wait();
    auto act = call.act(where.scope().str());
    act.verb = "features.read";
    platform.database.write(act, [](sql::Writer&) {});
  }
  return wanted;
}

void will_read(Platform& platform, const Call& call, const features::Selection& wanted, std::size_t entities) {
  constexpr std::size_t kShort =
      1000;  // values, read in tens of microseconds: less than changing the thread twice takes
  std::size_t features = 0;
  for (const auto& view : wanted) features += view.features.size();
  if (entities * features > kShort || platform.online.views().store().is_elsewhere()) call.will_wait();
}

features::Entities entities_of(const features::Selection& wanted, const json::value& given, OtherColumns others) {
  const auto* columns = given.if_object();
  if (!columns || columns->empty())
    throw Error(Code::invalid, "entities: must be an object with a list of values for each column of the key");
  std::size_t features = 0;
  for (const auto& view : wanted) features += view.features.size();
  features::Entities out;
  for (const auto& column : *columns) {
    const auto* values = column.value().if_array();
    if (!values) throw Error(Code::invalid, fmt::format("entities.{}: must be a list", std::string_view(column.key())));
    std::optional<online::Type> type;
    for (const auto& view : wanted)
      for (std::size_t i = 0; i < view.from->entity.key.size(); ++i)
        if (view.from->entity.key[i].name == column.key()) type = view.from->view->key[i];
    bool may_be_null = false;  // a key may not
    if (!type)
      for (const auto& view : wanted)
        for (const auto& field : view.from->computed.request())
          if (field.name == column.key()) type = field.type, may_be_null = true;
    if (!type && others == OtherColumns::ignored) continue;
    if (!type)
      throw Error(Code::invalid, fmt::format("entities.{}: is neither a key nor a field of the views asked for",
                                             std::string_view(column.key())));
    auto& read = out.columns.emplace_back(std::string(column.key()), std::vector<lookup::Value>());
    for (std::size_t i = 0; i < values->size(); ++i) {
      auto value = lookup::from_json((*values)[i], *type);
      if (!value || (!may_be_null && std::holds_alternative<std::monostate>(*value)))
        throw Error(Code::invalid, fmt::format("entities.{}[{}]: must be {}", std::string_view(column.key()), i,
                                               lookup::what_is_expected(*type)));
      read.second.push_back(std::move(*value));
    }
    if (read.second.size() != out.size())
      throw Error(Code::invalid, fmt::format("entities.{}: has {} values, the first list has {}",
                                             std::string_view(column.key()), read.second.size(), out.size()));
  }
  constexpr std::size_t kCellsMax = 1'000'000;
  if (out.size() * std::max<std::size_t>(features, 1) > kCellsMax)
    throw Error(Code::invalid, fmt::format("entities: {} of {} features each; at most {} values are given at once",
                                           out.size(), features, kCellsMax));
  return out;
}

void add_online_routes(Routes& routes, Platform& platform) {
  routes.add_written<GetIn, GetOut>(
      {Method::post, "/v1/features/get", Permission::signed_in("{scope}"), BodyLimit{kGetBytesMax}, Audit::read(),
       Place::here_first, "Features of entities as they are known now."},
      [&platform](Call& call, const GetIn& in) { return get(platform, call, in); });
  routes.add<PushIn, PushOut>(
      {Method::post, "/v1/features/push", Permission::signed_in("{scope}"), BodyLimit{kPushBytesMax},
       Audit::verb("features.push"), Place::worker, "Events that are known online when this returns, all or none."},
      [&platform](Call& call, const PushIn& in) {
        const auto where = project_of(call);
        if (in.source.empty() == in.dataset.empty())
          throw Error(Code::invalid, "source: name either a push source or a dataset");
        if (!in.source.empty()) call.require("feature.write", scope_of(where, "PushSource", in.source));
        const auto dataset =
            in.source.empty() ? in.dataset : platform.online.definitions().push_source(where, in.source).dataset;
        call.require("feature.write", scope_of(where, "Dataset", dataset));
        features::JsonRows rows;
        for (std::size_t i = 0; i < in.rows.size(); ++i) {
          if (!in.rows[i].is_object()) throw Error(Code::invalid, fmt::format("rows[{}]: must be an object", i));
          rows.push_back(in.rows[i].get_object());
        }
        const auto taken = platform.online.pushes().push(where, dataset, rows, {in.id, time_of(in.as_of, "as_of")},
                                                         call.act(scope_of(where, "Dataset", dataset).str()));
        return PushOut{dataset, taken.rows, taken.sequence, taken.again};
      });
  routes.add<FlushIn, FlushOut>(
      {Method::post, "/v1/features/flush", Permission::signed_in("{scope}"), BodyLimit{1024},
       Audit::verb("features.flush"), Place::worker, "Make a version of the dataset of what was pushed so far."},
      [&platform](Call& call, const FlushIn& in) {
        const auto where = project_of(call);
        call.require("feature.write", scope_of(where, "Dataset", in.dataset));
        const auto version =
            platform.online.pushes().flush(where, in.dataset, call.act(scope_of(where, "Dataset", in.dataset).str()));
        FlushOut out{in.dataset, std::nullopt, 0};
        if (version) out.version = version->number, out.rows = version->rows;
        return out;
      });
  const auto turns = std::make_shared<Turns>(kPassesMax, "materialisations");
  routes.add<MaterialiseIn, ViewOut>(
      {Method::post, "/v1/features/materialize", Permission::signed_in("{scope}"), BodyLimit{1024},
       Audit::verb("features.materialize"), Place::worker,
       "Bring the newest version of a view's dataset online: what is new, or all of it."},
      [&platform, turns](Call& call, const MaterialiseIn& in) {
        const Turn turn(*turns);
        const auto where = project_of(call);
        const auto named = features::parse_view_name(in.view);
        CHECK(named, "the shape says so");
        const auto scope = scope_of(where, "FeatureView", named->view);
        call.require("feature.write", scope);
        const auto row = platform.online.materialiser().run(
            where, named->view, {time_of(in.end, "end"), in.full, named->revision}, call.act(scope.str()));
        return status_of(platform, *platform.online.definitions().view(where, named->view, named->revision), row,
                         where);
      });
  routes.add<Nothing, ViewsOut>({Method::get, "/v1/features/views", Permission::signed_in("{scope}"), BodyLimit::none(),
                                 Audit::read(), Place::worker, "Feature views, and what of them is online."},
                                [&platform](Call& call, const Nothing&) { return list(platform, call); });
  routes.add<ViewChecksQuery, ViewChecksOut>(
      {Method::get, "/v1/features/views/{name}/checks", Permission::signed_in("{scope}"), BodyLimit::none(),
       Audit::read(), Place::worker, "What a view's expectations found in rows that came online, or were refused."},
      [&platform](Call& call, const ViewChecksQuery& in) {
        const auto where = project_of(call);
        const auto& name = call.parameter("name");
        call.require("feature.read", scope_of(where, "FeatureView", name));
        platform.online.definitions().view(where, name);  // throws not_found
        return ViewChecksOut{platform.online.views().checks(where, name, in.limit)};
      });
  routes.add<Nothing, RemovedOut>(
      {Method::post, "/v1/features/remove-unused", Permission::of("feature.delete", "{scope}"), BodyLimit{1024},
       Audit::verb("features.remove_unused"), Place::worker,
       "Remove rows of earlier definitions that no service names any more."},
      [&platform](Call& call, const Nothing&) {
        const auto where = project_of(call);
        return RemovedOut{static_cast<std::int64_t>(platform.online.materialiser().remove_unused(
            where, [&](const features::OnlineView& view) { return platform.online.is_used(view); },
            call.act(where.scope().str())))};
      });
  add_feast_routes(routes, platform, turns);
}

}  // namespace falaj::api
