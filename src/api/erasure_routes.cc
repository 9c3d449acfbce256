// SPDX-License-Identifier: Apache-2.0
// erasure of a person's rows

#include <limits>
#include <set>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "lifecycle/data/erasure.h"
#include "lifecycle/models/lineage.h"

namespace falaj::api {
namespace {

struct SubjectIn {
  std::string subject;
};
struct ErasureOut {
  std::string id, kind, subject, state, begun_by;
  std::int64_t begun_us = 0;
  std::optional<std::int64_t> done_us;
  double done = 0;
  data::ErasureReport report;
};
struct ErasuresQuery {
  std::string cursor;
  std::int64_t limit = kPageItems;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<SubjectIn> {
  static constexpr std::string_view name = "ErasureSubject";
  // In the body, as addresses are logged.
  static Fields fields() {
    return {field("subject", &SubjectIn::subject, "Who: a value of the column that spec.personal.subjectKey names.")
                .required()
                .length(1, 4096)
                .secret()};
  }
};
template <>
struct Shape<ErasureOut> {
  using T = ErasureOut;
  static constexpr std::string_view name = "Erasure";
  static Fields fields() {
    return {field("id", &T::id, "Its id."),
            field("kind", &T::kind, "subject, or retention: rows went because of their age."),
            field("subject", &T::subject, "A keyed hash of who; the same for the same."),
            field("state", &T::state, "begun, cleaning or done."),
            field("begun_by", &T::begun_by, "By whom."),
            field("begun_us", &T::begun_us, "When, in microseconds since 1970."),
            field("done_us", &T::done_us, "When nothing could be read any more."),
            field("done", &T::done, "How much of it is done, 0 to 1."),
            field("report", &T::report, "What went, and what was made of it.")};
  }
};
template <>
struct Shape<ErasuresQuery> {
  using T = ErasuresQuery;
  static constexpr std::string_view name = "ErasuresQuery";
  static Fields fields() {
    return {field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most items.").range(1, kPageItemsMax)};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

ErasureOut out_of(const data::Erasure& e, double done) {
  return {e.id,    e.kind, e.subject.hex(), e.state, e.begun_by, e.begun_us, e.done_us, e.state == "done" ? 1.0 : done,
          e.report};
}

Declaration reads(std::string_view path, std::string_view summary) {
  return {Method::get,   path,   Permission::of("erasure.read", "{scope}"), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}
Declaration erases(std::string_view path, Audit audit, std::string_view summary) {
  return {Method::post,  path,   Permission::of("data.erase", "{scope}"), BodyLimit{64 * 1024}, audit,
          Place::worker, summary};
}

}  // namespace

data::Descendants descendants(sql::Reader& reader, const vault::Where& where, const std::vector<std::string>& names) {
  std::set<models::Thing> things;
  for (const auto& name : names) {
    try {
      for (auto& thing :
           models::down(reader, where, {models::Thing::Kind::dataset, name}, std::numeric_limits<std::size_t>::max())
               .things)
        things.insert(std::move(thing));
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;  // no run ever named it
    }
  }
  data::Descendants out;
  for (const auto& thing : things) {
    if (thing.kind == models::Thing::Kind::run) out.runs.push_back(thing.id);
    if (thing.kind == models::Thing::Kind::logged_model) out.logged_models.push_back(thing.id);
    if (thing.kind == models::Thing::Kind::version) out.models.push_back(thing.id);
  }
  return out;
}

void add_erasure_routes(Routes& routes, Platform& platform) {
  auto& erasures = platform.erasures;
  routes.add<ErasuresQuery, Page<ErasureOut>>(
      reads("/v1/erasures", "Erasures in a project, the last first."),
      [&erasures](Call& call, const ErasuresQuery& in) {
        const auto before = in.cursor.empty() ? INT64_MAX : static_cast<std::int64_t>(offset_of(in.cursor));
        Page<ErasureOut> page;
        for (const auto& e : erasures.list(project_of(call), before, static_cast<std::size_t>(in.limit)))
          page.items.push_back(out_of(e, erasures.progress(e.id)));
        if (page.items.size() == static_cast<std::size_t>(in.limit))
          page.next = std::to_string(page.items.back().begun_us);
        return page;
      });
  routes.add<Nothing, ErasureOut>(reads("/v1/erasures/{id}", "One, and how far it is."),
                                  [&erasures](Call& call, const Nothing&) {
                                    const auto& id = call.parameter("id");
                                    return out_of(erasures.get(project_of(call), id), erasures.progress(id));
                                  });
  routes.add<SubjectIn, data::ErasureReport>(
      erases("/v1/erasures/plan", Audit::read(), "What an erasure would do, and what was made of the rows."),
      [&erasures](Call& call, const SubjectIn& in) { return erasures.plan(project_of(call), in.subject); });
  routes.add<SubjectIn, ErasureOut>(
      erases("/v1/erasures", Audit::verb("data.erase"),
             "Put an erasure on record. The server carries it out by itself; finishing it waits for that."),
      [&erasures](Call& call, const SubjectIn& in) {
        const auto where = project_of(call);
        return out_of(erasures.begin(where, in.subject, call.act(where.scope().str())), 0);
      });
  routes.add<Nothing, ErasureOut>(
      erases("/v1/erasures/{id}/finish", Audit::verb("data.erase"),
             "Carry it out: nothing of the subject can be read when it answers. Safe to repeat."),
      [&erasures](Call& call, const Nothing&) {
        const auto where = project_of(call);
        return out_of(erasures.finish(where, call.parameter("id"), call.act(where.scope().str())), 1);
      });
}

}  // namespace falaj::api
