// SPDX-License-Identifier: Apache-2.0
// Feast's feature server: its clients read and push unchanged, with http(s)://HOST/feast/TENANT/PROJECT as its address.

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/feature_text.h"
#include "api/features.h"
#include "api/turn.h"
#include "lifecycle/features/online.h"
#include "lifecycle/lookup/values.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kBodyMax{std::uint64_t{16} << 20};
constexpr const char* kNoTime = "1970-01-01T00:00:00Z";
constexpr const char* kDone = "null";  // what a call that only does something answers

struct Refused {
  Code code;
  int status;
  const char* type;  // as Feast's own server calls it
};
constexpr Refused kRefused[] = {
    {Code::invalid, 422, "FeastError"},          {Code::not_found, 404, "FeatureViewNotFoundException"},
    {Code::denied, 403, "FeastPermissionError"}, {Code::conflict, 409, "FeastError"},
    {Code::exhausted, 429, "FeastError"},        {Code::unavailable, 503, "FeastError"},
};

net::Response json_text(int status, std::string text) {
  net::Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = std::move(text);
  return response;
}

// Its clients read a JSON text that holds JSON.
net::Response refusal(const Error& error) {
  std::string message = error.what();
  for (std::size_t i = 1; i < error.faults().size(); ++i)
    message += fmt::format("; {}: {}", error.faults()[i].where, error.faults()[i].what);
  const auto* row =
      std::find_if(std::begin(kRefused), std::end(kRefused), [&](const Refused& r) { return r.code == error.code(); });
  const auto known = row != std::end(kRefused);
  const json::object about{
      {"module", "feast.errors"}, {"class", known ? row->type : "FeastError"}, {"message", message}};
  return json_text(known ? row->status : 500, json::serialize(json::value(json::serialize(about))));
}

vault::Where where_in_path(const Call& call) {
  return {TenantName::parse(call.parameter("tenant")), ProjectName::parse(call.parameter("project"))};
}

// Every read and write of it is declared here, so what it cannot read is said as it says it.
using Handler = std::function<std::string(Call&, const vault::Where&, const json::object&)>;
void add(Routes& routes, std::string_view path, Audit audit, std::string_view summary, Handler handler,
         Place place = Place::worker) {
  routes.add_foreign({Method::post, path, Permission::signed_in(), kBodyMax, audit, place, summary}, {},
                     [handler = std::move(handler)](Call& call, net::Request& request) {
                       try {
                         const auto text = request.body.read_all();
                         call.note_body(text);
                         const auto body = parse_json(text);
                         if (!body.is_object()) throw Error(Code::invalid, "the body must be an object");
                         return json_text(200, handler(call, where_in_path(call), body.get_object()));
                       } catch (const Error& e) {
                         if (e.code() == Code::denied) throw;  // recorded as every refusal is
                         return refusal(e);
                       }
                     });
}

std::string text_of(const json::object& in, std::string_view field) {
  const auto* value = in.if_contains(field);
  if (!value || value->is_null()) return "";
  if (!value->is_string()) throw Error(Code::invalid, fmt::format("{}: must be text", field));
  return std::string(value->get_string());
}

bool flag_of(const json::object& in, std::string_view field) {
  const auto* value = in.if_contains(field);
  return value && value->is_bool() && value->get_bool();
}

std::vector<std::string> list_of(const json::object& in, std::string_view field) {
  std::vector<std::string> out;
  const auto* value = in.if_contains(field);
  if (!value || value->is_null()) return out;
  if (!value->is_array()) throw Error(Code::invalid, fmt::format("{}: must be a list", field));
  for (const auto& item : value->get_array()) {
    if (!item.is_string()) throw Error(Code::invalid, fmt::format("{}: must be a list of texts", field));
    out.emplace_back(item.get_string());
  }
  return out;
}

std::optional<std::int64_t> time_of(const json::object& in, std::string_view field) {
  const auto text = text_of(in, field);
  if (text.empty()) return std::nullopt;
  const auto value = lookup::from_json(json::value(text), online::Type::timestamp);
  if (!value) throw Error(Code::invalid, fmt::format("{}: '{}' is no time", field, text.substr(0, 40)));
  return std::get<std::int64_t>(*value);
}

// "view@v2:feature" is revision 2 here.
std::vector<std::string> feature_names(const json::object& in) {
  auto out = list_of(in, "features");
  for (auto& name : out)
    if (const auto at = name.find("@v"); at != std::string::npos && at < name.find(':')) name.erase(at + 1, 1);
  return out;
}

// A column of a data frame for each field.
features::JsonRows rows_of(const json::object& in) {
  const auto* frame = in.if_contains("df");
  if (!frame || !frame->is_object()) throw Error(Code::invalid, "df: must be an object of columns");
  features::JsonRows out;
  bool first = true;
  for (const auto& column : frame->get_object()) {
    if (!column.value().is_array())
      throw Error(Code::invalid, fmt::format("df.{}: must be a list", std::string_view(column.key())));
    const auto& values = column.value().get_array();
    if (first) out.resize(values.size());
    first = false;
    if (values.size() != out.size())
      throw Error(Code::invalid, fmt::format("df.{}: has {} values, others {}", std::string_view(column.key()),
                                             values.size(), out.size()));
    for (std::size_t i = 0; i < values.size(); ++i) out[i][column.key()] = values[i];
  }
  return out;
}

void append_list(std::string& out, std::size_t length, std::string_view item) {
  out += '[';
  for (std::size_t i = 0; i < length; ++i) {
    if (i > 0) out += ',';
    out += item;
  }
  out += ']';
}

std::string get(Platform& platform, Call& call, const vault::Where& where, const json::object& in) {
  const auto wanted = selected(platform, call, where, text_of(in, "feature_service"), feature_names(in));
  const auto* given = in.if_contains("entities");
  if (!given) throw Error(Code::invalid, "entities: is missing");
  const auto entities = entities_of(*wanted, *given, OtherColumns::ignored);
  will_read(platform, call, *wanted, entities.size());
  const bool full = flag_of(in, "full_feature_names");
  std::string now;
  lookup::append_time(now, platform.clock.wall().count());
  FeatureText text(*wanted, entities.size(),
                   {{"PRESENT", "NULL_VALUE", "NOT_FOUND", "OUTSIDE_MAX_AGE"}, kNoTime, now, true});
  platform.online.views().get(*wanted, entities, std::nullopt, text);
  std::string names, out;
  out.reserve(text.bytes());
  const auto begin_result = [&](std::string_view name) {
    out += names.empty() ? R"({"values":)" : R"(,{"values":)";
    if (!names.empty()) names += ',';
    append_json_text(names, name);
  };
  // Keys first, as they were given.
  for (const auto& [name, values] : entities.columns) {
    begin_result(name);
    out += json::serialize(given->get_object().at(name));
    out += R"(,"statuses":)";
    append_list(out, values.size(), "\"PRESENT\"");
    out += R"(,"event_timestamps":)";
    append_list(out, values.size(), fmt::format("\"{}\"", kNoTime));
    out += '}';
  }
  std::size_t column = 0;
  for (const auto& view : *wanted)
    for (const auto& feature : view.features) {
      begin_result(full ? view.from->name + "__" + feature : feature);
      text.append_values(out, column);
      out += R"(,"statuses":)";
      text.append_statuses(out, column);
      out += R"(,"event_timestamps":)";
      text.append_times(out, column++);
      out += '}';
    }
  return fmt::format(R"({{"metadata":{{"feature_names":[{}]}},"results":[{}]}})", names, out);
}

// Its clients write features by their names, with two columns of times that are always called the same; the dataset may
// call them otherwise, and need not have the second.
features::JsonRows rows_of_view(const features::Definition& view, const json::object& in) {
  auto rows = rows_of(in);
  const auto schema = view.dataset.schema();
  const auto rename = [&](std::string_view from, const std::string& to) {
    if (from == to || table::find(schema, from)) return;
    for (auto& row : rows) {
      const auto* given = row.if_contains(from);
      if (!given) continue;
      const auto value = *given;
      row.erase(from);
      if (!to.empty() && !row.contains(to)) row[to] = value;
    }
  };
  rename("event_timestamp", view.spec.time);
  rename("created", view.spec.available);
  for (const auto& feature : view.spec.features)
    if (!feature.column.empty()) rename(feature.name, feature.column);
  // Not said: when it happened.
  if (!view.spec.available.empty())
    for (auto& row : rows)
      if (const auto* at = row.if_contains(view.spec.available);
          (!at || at->is_null()) && row.contains(view.spec.time)) {
        const auto happened = row.at(view.spec.time);
        row[view.spec.available] = happened;
      }
  return rows;
}

void push(Platform& platform, Call& call, const vault::Where& where, const std::string& dataset,
          const features::JsonRows& rows) {
  const auto scope = resource::Key{"Dataset", where.tenant.str(), where.project.str(), dataset}.scope();
  call.require("feature.write", scope);
  platform.online.pushes().push(where, dataset, rows, {}, call.act(scope.str()));
}

// Those that are named, each once; else all that are declared and have rows, as there. They are there, and the caller
// may.
std::vector<std::string> views_to_fill(Platform& platform, const Call& call, const vault::Where& where,
                                       const json::object& in) {
  auto views = list_of(in, "feature_views");
  if (views.empty()) {
    resource::ListOptions options{where.tenant.str(), where.project.str(), "", "", 1000};
    do {
      const auto page = platform.resources.list("FeatureView", options, [](auto&&...) { return std::nullopt; });
      for (const auto& stored : page.items) {
        const auto spec = decode<features::FeatureViewSpec>(stored.resource.spec, "reading a feature view's spec");
        if (!spec.entity.empty() && platform.datasets.dataset(where, spec.dataset).newest)
          views.push_back(stored.resource.metadata.name);
      }
      options.cursor = page.next;
    } while (!options.cursor.empty());
  }
  std::sort(views.begin(), views.end());
  views.erase(std::unique(views.begin(), views.end()), views.end());
  for (const auto& view : views)
    call.require("feature.write", resource::Key{"FeatureView", where.tenant.str(), where.project.str(), view}.scope());
  for (const auto& view : views) platform.online.definitions().view(where, view);  // throws not_found
  return views;
}

// Everything anew, unless all that is asked for came after what is online: then what is new is enough.
bool begins_anew(Platform& platform, const vault::Where& where, const std::string& view,
                 std::optional<std::int64_t> start_us) {
  if (!start_us) return true;
  const auto row = platform.online.views().find(platform.online.definitions().view(where, view)->meaning);
  return !row || !row->done || *start_us < row->done->end_us;
}

std::string materialise(Platform& platform, Call& call, const vault::Where& where, const json::object& in,
                        Turns& passes, bool full) {
  const auto start = full ? time_of(in, "start_ts") : std::nullopt, end = time_of(in, "end_ts");
  if (start && end && *start > *end) throw Error(Code::invalid, "start_ts: lies after end_ts");
  for (const auto& view : views_to_fill(platform, call, where, in)) {
    const Turn turn(passes);
    const auto scope = resource::Key{"FeatureView", where.tenant.str(), where.project.str(), view}.scope();
    platform.online.materialiser().run(where, view, {end, full && begins_anew(platform, where, view, start)},
                                       call.act(scope.str()));
  }
  return kDone;
}

}  // namespace

void add_feast_routes(Routes& routes, Platform& platform, const std::shared_ptr<Turns>& passes) {
  add(
      routes, "/feast/{tenant}/{project}/get-online-features", Audit::read(),
      "Features now, as Feast's server says it.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) {
        return get(platform, call, where, in);
      },
      Place::here_first);
  add(routes, "/feast/{tenant}/{project}/push", Audit::verb("features.push"), "Push rows of a data frame.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) -> std::string {
        if (const auto to = text_of(in, "to"); !to.empty() && to != "online" && to != "online_and_offline")
          throw Error(Code::invalid, fmt::format("to: '{}': pushed rows go online and become rows of the dataset", to));
        const auto source = text_of(in, "push_source_name");
        call.require("feature.write",
                     resource::Key{"PushSource", where.tenant.str(), where.project.str(), source}.scope());
        push(platform, call, where, platform.online.definitions().push_source(where, source).dataset, rows_of(in));
        return kDone;
      });
  add(routes, "/feast/{tenant}/{project}/write-to-online-store", Audit::verb("features.push"),
      "Push rows to the dataset of a view.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) -> std::string {
        const auto view = text_of(in, "feature_view_name");
        call.require("feature.write",
                     resource::Key{"FeatureView", where.tenant.str(), where.project.str(), view}.scope());
        const auto definition = platform.online.definitions().view(where, view);
        push(platform, call, where, definition->spec.dataset, rows_of_view(*definition, in));
        return kDone;
      });
  add(routes, "/feast/{tenant}/{project}/materialize", Audit::verb("features.materialize"),
      "Bring views online: from the beginning, when start_ts lies before what is online.",
      [&platform, passes](Call& call, const vault::Where& where, const json::object& in) {
        return materialise(platform, call, where, in, *passes, true);
      });
  add(routes, "/feast/{tenant}/{project}/materialize-incremental", Audit::verb("features.materialize"),
      "Bring what is new of views online.",
      [&platform, passes](Call& call, const vault::Where& where, const json::object& in) {
        return materialise(platform, call, where, in, *passes, false);
      });
  routes.add_foreign({Method::get, "/feast/{tenant}/{project}/health", Permission::signed_in(), BodyLimit::none(),
                      Audit::read(), Place::worker, "Whether features are served."},
                     {}, [](Call&, net::Request&) { return net::Response(); });
}

}  // namespace falaj::api
