// SPDX-License-Identifier: Apache-2.0
// retention

#include "api/call.h"
#include "foundation/base/shape.h"
#include "lifecycle/models/retention.h"

namespace falaj::api {
namespace {

struct RunRetention {
  bool dry_run = false;
};
struct RetentionStatus {
  models::RetentionReport due;
  std::optional<std::int64_t> last_pass_us;
  std::optional<models::RetentionReport> last;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<RunRetention> {
  static constexpr std::string_view name = "RunRetention";
  static Fields fields() { return {field("dry_run", &RunRetention::dry_run, "Only say what would be done.")}; }
};
template <>
struct Shape<RetentionStatus> {
  using T = RetentionStatus;
  static constexpr std::string_view name = "RetentionStatus";
  static Fields fields() {
    return {
        field("due", &T::due, "What a pass would do now."),
        field("last_pass_us", &T::last_pass_us, "When the last pass over the platform was; absent: there was none."),
        field("last", &T::last, "What that pass did; only when the whole platform is asked about.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

// Rows about people go by what their dataset says, not by a policy.
std::int64_t erase_old_rows(Platform& platform, const models::Retention::Asked& asked) {
  std::int64_t rows = 0;
  const sql::Act act{asked.actor, "data.retain", asked.scope.str(), asked.request_id};
  for (const auto& erased : platform.erasures.retain(asked.scope, asked.dry_run, act, asked.go_on))
    for (const auto& dataset : erased.report.datasets) rows += dataset.rows;
  return rows;
}

}  // namespace

models::Retention retention_of(Platform& platform) {
  return models::Retention({platform.database, platform.directory, platform.resources, platform.vault, platform.track,
                            platform.logged_models, platform.metrics});
}

void add_retention_routes(Routes& routes, Platform& platform) {
  routes.add<Nothing, RetentionStatus>(
      {Method::get, "/v1/retention", Permission::of("retentionpolicy.read", "{scope}"), BodyLimit::none(),
       Audit::read(), Place::worker,
       "What retention policies would remove now, what they keep and why, the last pass."},
      [&platform](Call& call, const Nothing&) {
        auto retention = retention_of(platform);
        RetentionStatus out;
        models::Retention::Asked asked;
        asked.scope = call.scope();
        asked.dry_run = true;
        out.due = retention.pass(platform.clock.wall().count(), asked);
        out.due.erased_rows = erase_old_rows(platform, asked);
        if (auto last = retention.last()) {
          out.last_pass_us = last->at_us;
          if (asked.scope == iam::Scope()) out.last = std::move(last);  // it names things of every tenant
        }
        return out;
      });
  routes.add<RunRetention, models::RetentionReport>(
      {Method::post, "/v1/retention/run", Permission::of("retention.run", "{scope}"), BodyLimit{1024},
       Audit::verb("retention.pass"), Place::worker,
       "Do now what retention policies say; the server does it by itself every so often."},
      [&platform](Call& call, const RunRetention& in) {
        models::Retention::Asked asked;
        asked.scope = call.scope();
        asked.dry_run = in.dry_run;
        asked.actor = call.actor();
        asked.request_id = call.head().request_id;
        auto report = retention_of(platform).pass(platform.clock.wall().count(), asked);
        report.erased_rows = erase_old_rows(platform, asked);
        return report;
      });
}

}  // namespace falaj::api
