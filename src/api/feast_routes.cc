// SPDX-License-Identifier: Apache-2.0
// Feast's feature server: its clients read and push unchanged, with http(s)://HOST/feast/TENANT/PROJECT as its address.

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/features.h"
#include "lifecycle/features/online.h"
#include "lifecycle/lookup/values.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kBodyMax{std::uint64_t{16} << 20};
constexpr const char* kNoTime = "1970-01-01T00:00:00Z";

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
using Handler = std::function<json::value(Call&, const vault::Where&, const json::object&)>;
void add(Routes& routes, std::string_view path, Audit audit, std::string_view summary, Handler handler) {
  routes.add_foreign({Method::post, path, Permission::signed_in(), kBodyMax, audit, Place::worker, summary}, {},
                     [handler = std::move(handler)](Call& call, net::Request& request) {
                       try {
                         const auto text = request.body.read_all();
                         call.note_body(text);
                         const auto body = parse_json(text);
                         if (!body.is_object()) throw Error(Code::invalid, "the body must be an object");
                         return json_text(200, json::serialize(handler(call, where_in_path(call), body.get_object())));
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

const char* status_name(online::Status status) {
  switch (status) {
    case online::Status::present:
      return "PRESENT";
    case online::Status::null:
      return "NULL_VALUE";
    case online::Status::missing:
      return "NOT_FOUND";
    case online::Status::expired:
      return "OUTSIDE_MAX_AGE";
  }
  return "INVALID";
}

json::value get(Platform& platform, Call& call, const vault::Where& where, const json::object& in) {
  const auto wanted = selected(platform, call, where, text_of(in, "feature_service"), feature_names(in));
  const auto* given = in.if_contains("entities");
  if (!given) throw Error(Code::invalid, "entities: is missing");
  const auto entities = entities_of(wanted, *given, OtherColumns::ignored);
  const bool full = flag_of(in, "full_feature_names");
  const auto now = lookup::to_json(platform.clock.wall().count(), online::Type::timestamp);
  json::array names, results;
  for (const auto& [name, values] : entities.columns) {
    names.emplace_back(name);
    json::array column = given->get_object().at(name).as_array();
    results.push_back(json::object{{"values", std::move(column)},
                                   {"statuses", json::array(values.size(), "PRESENT")},
                                   {"event_timestamps", json::array(values.size(), kNoTime)}});
  }
  for (const auto& column : platform.online.views().get(wanted, entities)) {
    names.emplace_back(full ? column.view + "__" + column.name : column.name);
    json::array values, statuses, times;
    for (std::size_t i = 0; i < column.values.size(); ++i) {
      // Its times are whole seconds.
      const auto* us = std::get_if<std::int64_t>(&column.values[i]);
      values.push_back(us && column.type == online::Type::timestamp ? json::value(*us / 1'000'000)
                                                                    : lookup::to_json(column.values[i], column.type));
      statuses.emplace_back(status_name(column.statuses[i]));
      const bool found = column.statuses[i] == online::Status::present || column.event_us[i] != 0;
      times.push_back(!found                    ? json::value(kNoTime)
                      : column.event_us[i] == 0 ? now
                                                : lookup::to_json(column.event_us[i], online::Type::timestamp));
    }
    results.push_back(json::object{
        {"values", std::move(values)}, {"statuses", std::move(statuses)}, {"event_timestamps", std::move(times)}});
  }
  return json::object{{"metadata", json::object{{"feature_names", std::move(names)}}}, {"results", std::move(results)}};
}

void push(Platform& platform, Call& call, const vault::Where& where, const std::string& dataset,
          const json::object& in) {
  const auto scope = resource::Key{"Dataset", where.tenant.str(), where.project.str(), dataset}.scope();
  call.require("feature.write", scope);
  platform.online.pushes().push(where, dataset, rows_of(in), {}, call.act(scope.str()));
}

json::value materialise(Platform& platform, Call& call, const vault::Where& where, const json::object& in, bool full) {
  auto views = list_of(in, "feature_views");
  if (views.empty())
    for (const auto& row : platform.online.views().list(where)) views.push_back(row.view);
  for (const auto& view : views) {
    const auto scope = resource::Key{"FeatureView", where.tenant.str(), where.project.str(), view}.scope();
    call.require("feature.write", scope);
    platform.online.materialiser().run(where, view, {time_of(in, "end_ts"), full}, call.act(scope.str()));
  }
  return nullptr;
}

}  // namespace

void add_feast_routes(Routes& routes, Platform& platform) {
  add(routes, "/feast/{tenant}/{project}/get-online-features", Audit::read(),
      "Features now, as Feast's server says it.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) {
        return get(platform, call, where, in);
      });
  add(routes, "/feast/{tenant}/{project}/push", Audit::verb("features.push"), "Push rows of a data frame.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) -> json::value {
        if (const auto to = text_of(in, "to"); !to.empty() && to != "online" && to != "online_and_offline")
          throw Error(Code::invalid, fmt::format("to: '{}': pushed rows go online and become rows of the dataset", to));
        const auto source = text_of(in, "push_source_name");
        call.require("feature.write",
                     resource::Key{"PushSource", where.tenant.str(), where.project.str(), source}.scope());
        push(platform, call, where, platform.online.definitions().push_source(where, source).dataset, in);
        return nullptr;
      });
  add(routes, "/feast/{tenant}/{project}/write-to-online-store", Audit::verb("features.push"),
      "Push rows to the dataset of a view.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) -> json::value {
        const auto view = text_of(in, "feature_view_name");
        call.require("feature.write",
                     resource::Key{"FeatureView", where.tenant.str(), where.project.str(), view}.scope());
        push(platform, call, where, platform.online.definitions().view(where, view)->spec.dataset, in);
        return nullptr;
      });
  add(routes, "/feast/{tenant}/{project}/materialize", Audit::verb("features.materialize"),
      "Bring views online from the beginning.",
      [&platform](Call& call, const vault::Where& where, const json::object& in) {
        return materialise(platform, call, where, in, true);
      });
  add(routes, "/feast/{tenant}/{project}/materialize-incremental", Audit::verb("features.materialize"),
      "Bring what is new of views online.", [&platform](Call& call, const vault::Where& where, const json::object& in) {
        return materialise(platform, call, where, in, false);
      });
  routes.add_foreign({Method::get, "/feast/{tenant}/{project}/health", Permission::signed_in(), BodyLimit::none(),
                      Audit::read(), Place::worker, "Whether features are served."},
                     {}, [](Call&, net::Request&) { return net::Response(); });
}

}  // namespace falaj::api
