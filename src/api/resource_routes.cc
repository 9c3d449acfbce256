// SPDX-License-Identifier: Apache-2.0
// apply, diff, get, history, rollback, export

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"

namespace falaj::api {
namespace {

struct SourceText {
  std::string file, text;
};
struct ApplyRequest {
  std::vector<SourceText> sources;
  bool dry_run = false;
};
struct ChangeRow {
  std::string change, kind, name, resource;
  std::int64_t revision = 0;
  std::vector<std::string> diff;
};
struct Changes {
  std::vector<ChangeRow> changes;
};
struct ListQuery {
  std::string selector, cursor;
  std::int64_t limit = kPageItems;
};
struct RevisionRow {
  std::int64_t revision = 0, at_us = 0;
  std::string change, by;
  std::optional<std::string> digest;
  std::optional<json::value> resource;
};
struct RollbackRequest {
  std::int64_t revision = 0;
};
struct Exported {
  std::string yaml;
};
struct ResourcePage {
  std::vector<json::value> items;
  std::optional<std::string> next;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<SourceText> {
  static constexpr std::string_view name = "SourceText";
  static Fields fields() {
    return {field("file", &SourceText::file, "Its name, for messages.").required().length(1, 1024),
            field("text", &SourceText::text, "YAML, one or more documents.").required().length(0, 1 << 20)};
  }
};
template <>
struct Shape<ApplyRequest> {
  static constexpr std::string_view name = "ApplyRequest";
  static Fields fields() {
    return {
        field("sources", &ApplyRequest::sources, "Files of resources.").required().length(1, 1000),
        field("dry_run", &ApplyRequest::dry_run, "Check everything and say what would change, but change nothing.")};
  }
};
template <>
struct Shape<ChangeRow> {
  static constexpr std::string_view name = "Change";
  static Fields fields() {
    return {field("change", &ChangeRow::change, "created, updated, unchanged or deleted."),
            field("kind", &ChangeRow::kind, "Its kind."),
            field("name", &ChangeRow::name, "Its name."),
            field("resource", &ChangeRow::resource, "In words, such as Project acme/flights."),
            field("revision", &ChangeRow::revision, "The one it has now."),
            field("diff", &ChangeRow::diff, "What differs, field by field.")};
  }
};
template <>
struct Shape<Changes> {
  static constexpr std::string_view name = "Changes";
  static Fields fields() {
    return {field("changes", &Changes::changes, "One entry a resource, in the order of application.")};
  }
};
template <>
struct Shape<ListQuery> {
  static constexpr std::string_view name = "ListQuery";
  static Fields fields() {
    return {field("selector", &ListQuery::selector, "Only those with these labels: key=value,..."),
            field("cursor", &ListQuery::cursor, "From the page before."),
            field("limit", &ListQuery::limit, "Most items in a page.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<RevisionRow> {
  static constexpr std::string_view name = "Revision";
  static Fields fields() {
    return {field("revision", &RevisionRow::revision, "Its number."),
            field("at_us", &RevisionRow::at_us, "When."),
            field("change", &RevisionRow::change, "create, update or delete."),
            field("by", &RevisionRow::by, "Who."),
            field("digest", &RevisionRow::digest, "Of what was declared."),
            field("resource", &RevisionRow::resource, "What was declared.")};
  }
};
template <>
struct Shape<RollbackRequest> {
  static constexpr std::string_view name = "RollbackRequest";
  static Fields fields() {
    return {field("revision", &RollbackRequest::revision, "The one to return to.").required().range(1, 1'000'000'000)};
  }
};
template <>
struct Shape<Exported> {
  static constexpr std::string_view name = "Exported";
  static Fields fields() { return {field("yaml", &Exported::yaml, "Documents that apply takes back.")}; }
};
template <>
struct Shape<ResourcePage> {
  static constexpr std::string_view name = "ResourcePage";
  static Fields fields() {
    return {field("items", &ResourcePage::items, "Resources: apiVersion, kind, metadata, spec, status."),
            field("next", &ResourcePage::next, "Give it as 'cursor' to get the next part; absent at the end.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

constexpr BodyLimit kFilesBody{16 << 20};

Changes rows_of(const std::vector<resource::Change>& changes) {
  Changes out;
  for (const auto& c : changes)
    out.changes.push_back(
        {std::string(resource::name(c.outcome)), c.key.kind, c.key.name, c.key.str(), c.revision, c.diff});
  return out;
}

std::vector<resource::Document> documents_of(const ApplyRequest& in) {
  std::vector<resource::Document> documents;
  for (const auto& source : in.sources)
    for (auto& document : resource::read_documents(source.file, source.text)) documents.push_back(std::move(document));
  if (documents.empty()) throw Error(Code::invalid, "sources: there is no resource in them");
  return documents;
}

// "project" at /t/acme is Project acme/NAME: a tenant's project has the tenant as its place.
resource::Key key_of(Platform& platform, const PathParameters& parameters, const net::Head& head) {
  const auto& kind = platform.resources.registry().get(parameters.at("kind"));
  const auto scope = iam::Scope::parse(head.parameter("scope").value_or("/"));
  return {std::string(kind.name), std::string(scope.tenant()), std::string(scope.project()), parameters.at("name")};
}
resource::Key key_of(Platform& platform, const Call& call) { return key_of(platform, call.parameters(), call.head()); }

// KIND.read and the like, on the resource that the path and the scope name.
Permission permission(Platform& platform, std::string_view says, std::string_view verb) {
  return Permission::by(
      says, [&platform, verb](const PathParameters& parameters, const net::Head& head, const iam::Identity&) {
        const auto key = key_of(platform, parameters, head);
        return Permission::Needed{platform.resources.registry().get(key.kind).action(verb),
                                  verb == "read" ? key.scope() : key.change_scope()};
      });
}

sql::Act unnamed_act(const Call& call) {
  sql::Act act = call.act("");
  act.verb.clear();  // resources name the kind and what happened to it
  return act;
}

void add_resource_reading(Routes& routes, Platform& platform) {
  routes.add<ListQuery, ResourcePage>(
      {Method::get, "/v1/resources/{kind}", Permission::signed_in("{scope}"), BodyLimit::none(), Audit::read(),
       Place::worker, "Resources of a kind, at and below 'scope', that the caller may read."},
      [&platform](Call& call, const ListQuery& in) {
        const auto scope = call.scope();
        const auto page = platform.resources.list(
            call.parameter("kind"),
            {std::string(scope.tenant()), std::string(scope.project()), in.selector, in.cursor, in.limit},
            authorise(call));
        ResourcePage out;
        for (const auto& item : page.items) out.items.push_back(item.json());
        if (!page.next.empty()) out.next = page.next;
        return out;
      });
  routes.add_download<Nothing>({Method::get, "/v1/resources/{kind}/{name}", permission(platform, "KIND.read", "read"),
                                BodyLimit::none(), Audit::read(), Place::here, "One resource."},
                               "application/json", [&platform](Call& call, const Nothing&) {
                                 net::Response response;
                                 response.headers.add("Content-Type", "application/json");
                                 response.body = *platform.resources.get_text(key_of(platform, call));
                                 return response;
                               });
  routes.add<Nothing, Page<RevisionRow>>(
      {Method::get, "/v1/resources/{kind}/{name}/history", permission(platform, "KIND.read", "read"), BodyLimit::none(),
       Audit::read(), Place::worker, "Every revision of a resource, oldest first."},
      [&platform](Call& call, const Nothing&) {
        Page<RevisionRow> page;
        for (const auto& r : platform.resources.history(key_of(platform, call))) {
          RevisionRow row{r.revision, r.at_us, r.verb, r.actor, std::nullopt, std::nullopt};
          if (r.digest) row.digest = r.digest->hex();
          if (r.resource) row.resource = r.resource->body();
          page.items.push_back(std::move(row));
        }
        return page;
      });
  routes.add<Nothing, Exported>(
      {Method::get, "/v1/export", Permission::signed_in("{scope}"), BodyLimit::none(), Audit::read(), Place::worker,
       "All resources at and below 'scope' that the caller may read, as YAML."},
      [&platform](Call& call, const Nothing&) {
        return Exported{platform.resources.export_yaml(call.scope(), authorise(call))};
      });
}

}  // namespace

void add_resource_routes(Routes& routes, Platform& platform) {
  routes.add<ApplyRequest, Changes>(
      {Method::post, "/v1/apply", Permission::signed_in(), kFilesBody, Audit::verb("resource.apply"), Place::worker,
       "Make the platform as these resources say: all of it, or none. Each needs KIND.create or KIND.update where it "
       "belongs."},
      [&platform](Call& call, const ApplyRequest& in) {
        const auto documents = documents_of(in);
        return rows_of(in.dry_run ? platform.resources.plan(documents, authorise(call))
                                  : platform.resources.apply(unnamed_act(call), documents, authorise(call)));
      });
  routes.add<ApplyRequest, Changes>({Method::post, "/v1/diff", Permission::signed_in(), kFilesBody, Audit::read(),
                                     Place::worker, "What apply would change."},
                                    [&platform](Call& call, const ApplyRequest& in) {
                                      return rows_of(platform.resources.plan(documents_of(in), authorise(call)));
                                    });
  add_resource_reading(routes, platform);
  routes.add<Nothing, Changes>(
      {Method::del, "/v1/resources/{kind}/{name}", permission(platform, "KIND.delete", "delete"), BodyLimit::none(),
       Audit::verb("resource.delete"), Place::worker,
       "Delete a resource; refused while another depends on it. Needs KIND.delete."},
      [&platform](Call& call, const Nothing&) {
        const resource::Key key = key_of(platform, call);
        return rows_of(platform.resources.remove(unnamed_act(call), {&key, 1}, authorise(call)));
      });
  routes.add<RollbackRequest, Changes>(
      {Method::post, "/v1/resources/{kind}/{name}/rollback", permission(platform, "KIND.update", "update"), kSmallBody,
       Audit::verb("resource.rollback"), Place::worker,
       "Make a resource again what it was at a revision. Needs KIND.update."},
      [&platform](Call& call, const RollbackRequest& in) {
        return rows_of(
            platform.resources.rollback(unnamed_act(call), key_of(platform, call), in.revision, authorise(call)));
      });
}

}  // namespace falaj::api
