// SPDX-License-Identifier: Apache-2.0
// Every route x every role x every state of a credential, compared with testdata/access_matrix.txt. After a change that
// is meant, write the table anew with FALAJ_UPDATE_GOLDEN=1 and read what differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "api/mlflow/protocol.h"
#include "api/testing.h"
#include "apps/falaj/control_plane.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"

namespace falaj::app {
namespace {

using api::Method;
using api::Question;

// One request of each route, with everything in it that the route needs to get as far as asking for permission.
// `admin` is the status an administrator gets: it shows that the request is otherwise right.
struct Example {
  Method method;
  std::string route, note, target, body;
  int admin = 200;  // 0: any that is not a refusal
  std::string name() const {
    return fmt::format("{} {}{}", net::name(method), route, note.empty() ? "" : " (" + note + ")");
  }
};

std::string apply_body(std::string_view yaml) {
  return json::serialize(json::value{{"sources", json::array{{{"file", "x.yaml"}, {"text", yaml}}}}});
}

constexpr std::string_view kPolicy =  // `N` differs each time, so that there is something to change
    "{apiVersion: falaj/v1, kind: RetentionPolicy, metadata: {tenant: acme, project: flights, name: old, "
    "description: 'N'}, spec: {resources: ['blob/raw-*'], keep: 90d, then: delete}}";
constexpr std::string_view kZone =
    "{apiVersion: falaj/v1, kind: Zone, metadata: {name: spare, description: 'N'}, spec: {residency: AE}}";
constexpr std::string_view kTenant =
    "{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme, description: 'N'}, spec: {zones: [uae]}}";

const std::string kScope = "?scope=/t/acme/p/flights";
const std::string kToken = "01h00000000000000000000000", kPrint(64, 'c');

std::vector<Example> examples() {
  const auto get = Method::get, post = Method::post, put = Method::put, del = Method::del;
  return {
      {get, "/healthz", "", "/healthz", ""},
      {get, "/readyz", "", "/readyz", "", 503},
      {get, "/metrics", "", "/metrics", ""},
      {get, "/v1/version", "", "/v1/version", ""},
      {get, "/v1/status", "", "/v1/status", ""},
      {get, "/v1/config", "", "/v1/config", ""},
      {get, "/v1/openapi.json", "", "/v1/openapi.json", ""},
      {post, "/v1/login", "", "/v1/login", "{}", 400},
      {post, "/v1/logout", "", "/v1/logout", ""},
      {get, "/v1/whoami", "", "/v1/whoami", ""},
      {post, "/v1/tokens", "one's own", "/v1/tokens", R"({"name":"x"})"},
      {post, "/v1/tokens", "another's", "/v1/tokens", R"({"name":"x","principal":"user/acme/ada"})"},
      {get, "/v1/tokens", "one's own", "/v1/tokens", ""},
      {get, "/v1/tokens", "another's", "/v1/tokens?principal=user/acme/ada", ""},
      {del, "/v1/tokens/{id}", "one's own", "/v1/tokens/" + kToken, "", 404},
      {del, "/v1/tokens/{id}", "another's", "/v1/tokens/" + kToken + "?principal=user/acme/ada", "", 404},
      {post, "/v1/users/{name}/password", "another's", "/v1/users/carol/password", R"({"password":"short"})", 400},
      {post, "/v1/certificates", "", "/v1/certificates",
       R"({"fingerprint":")" + std::string(64, 'd') + R"(","principal":"user/carol"})"},
      {get, "/v1/certificates", "", "/v1/certificates", ""},
      {del, "/v1/certificates/{fingerprint}", "", "/v1/certificates/" + kPrint, "", 404},
      {post, "/v1/apply", "in the project", "/v1/apply", apply_body(kPolicy)},
      {post, "/v1/apply", "a zone", "/v1/apply", apply_body(kZone)},
      {post, "/v1/apply", "the tenant", "/v1/apply", apply_body(kTenant)},
      {post, "/v1/diff", "in the project", "/v1/diff", apply_body(kPolicy)},
      {post, "/v1/diff", "a zone", "/v1/diff", apply_body(kZone)},
      {get, "/v1/resources/{kind}", "projects", "/v1/resources/project", ""},
      {get, "/v1/resources/{kind}", "zones", "/v1/resources/zone", ""},
      {get, "/v1/resources/{kind}", "of another tenant", "/v1/resources/project?scope=/t/other", ""},
      {get, "/v1/resources/{kind}/{name}", "the project", "/v1/resources/project/flights?scope=/t/acme", ""},
      {get, "/v1/resources/{kind}/{name}", "of another tenant", "/v1/resources/project/maps?scope=/t/other", ""},
      {get, "/v1/resources/{kind}/{name}", "a zone", "/v1/resources/zone/uae", ""},
      {get, "/v1/resources/{kind}/{name}", "not there", "/v1/resources/retentionpolicy/none" + kScope, "", 404},
      {get, "/v1/resources/{kind}/{name}/history", "the project", "/v1/resources/project/flights/history?scope=/t/acme",
       ""},
      {get, "/v1/resources/{kind}/{name}/history", "a zone", "/v1/resources/zone/uae/history", ""},
      {get, "/v1/export", "", "/v1/export", ""},
      {get, "/v1/export", "of another tenant", "/v1/export?scope=/t/other", ""},
      {del, "/v1/resources/{kind}/{name}", "in the project", "/v1/resources/retentionpolicy/old" + kScope, ""},
      {del, "/v1/resources/{kind}/{name}", "a zone", "/v1/resources/zone/spare", ""},
      {post, "/v1/resources/{kind}/{name}/rollback", "in the project",
       "/v1/resources/retentionpolicy/old/rollback" + kScope, R"({"revision":1})"},
      {post, "/v1/resources/{kind}/{name}/rollback", "a zone", "/v1/resources/zone/uae/rollback", R"({"revision":1})"},
      {post, "/v1/blobs", "", "/v1/blobs" + kScope + "&name=a", "bytes"},
      {post, "/v1/blobs", "of another tenant", "/v1/blobs?scope=/t/other/p/maps&name=a", "bytes"},
      {post, "/v1/blobs/batch", "", "/v1/blobs/batch" + kScope, "x", 400},
      {del, "/v1/blobs", "", "/v1/blobs" + kScope + "&name=none", "", 404},
      {get, "/v1/blobs", "", "/v1/blobs" + kScope, ""},
      {get, "/v1/blobs", "of another tenant", "/v1/blobs?scope=/t/other/p/maps", ""},
      {get, "/v1/blobs/info", "", "/v1/blobs/info" + kScope + "&name=a", ""},
      {get, "/v1/blobs/content", "", "/v1/blobs/content" + kScope + "&name=a", ""},
      {get, "/v1/blobs/content", "of another tenant", "/v1/blobs/content?scope=/t/other/p/maps&name=a", ""},
      {post, "/v1/blobs/pin", "", "/v1/blobs/pin" + kScope, R"({"name":"none","reason":"x"})", 404},
      {post, "/v1/blobs/unpin", "", "/v1/blobs/unpin" + kScope, R"({"name":"none","reason":"x"})", 400},
      {post, "/v1/blobs/gc", "", "/v1/blobs/gc", ""},
      {post, "/v1/blobs/scrub", "", "/v1/blobs/scrub", ""},
      {get, "/v1/keys", "", "/v1/keys", ""},
      {post, "/v1/keys/rotate", "", "/v1/keys/rotate", R"({"level":"zone","zone":"nowhere"})", 404},
      {get, "/v1/audit", "", "/v1/audit", ""},
      {post, "/v1/audit/verify", "", "/v1/audit/verify", R"({"head":{}})", 400},
      {get, "/v1/audit/head", "", "/v1/audit/head", ""},
      {get, "/v1/audit/{record}/proof", "", "/v1/audit/0/proof", ""},
      {get, "/v1/audit/export", "", "/v1/audit/export?actor=user/carol", ""},
      {post, "/v1/backup", "", "/v1/backup", "{}", 400},
      {get, "/v1/experiments", "", "/v1/experiments" + kScope, ""},
      {get, "/v1/experiments", "of another tenant", "/v1/experiments?scope=/t/other/p/maps", ""},
      {get, "/v1/experiments/{name*}", "", "/v1/experiments/Default" + kScope, ""},
      {get, "/v1/runs", "", "/v1/runs" + kScope, ""},
      {get, "/v1/runs", "of another tenant", "/v1/runs?scope=/t/other/p/maps", ""},
      {get, "/v1/runs/compare", "", "/v1/runs/compare" + kScope + "&ids=1&ids=2", "", 404},
      {get, "/v1/runs/{id}", "", "/v1/runs/1" + kScope, "", 404},
      {get, "/v1/runs/{id}/metrics/{key*}", "", "/v1/runs/1/metrics/a/b" + kScope, "", 404},
      {post, "/v1/runs/{id}/delete", "", "/v1/runs/1/delete" + kScope, "{}", 404},
      {post, "/v1/runs/{id}/restore", "", "/v1/runs/1/restore" + kScope, "{}", 404},
      {del, "/v1/runs/{id}", "", "/v1/runs/1" + kScope, "", 404},
      {del, "/v1/runs/{id}", "of another tenant", "/v1/runs/1?scope=/t/other/p/maps", "", 404},
      {get, "/v1/models", "", "/v1/models" + kScope, ""},
      {get, "/v1/models", "of another tenant", "/v1/models?scope=/t/other/p/maps", ""},
      {get, "/v1/models/{name}", "", "/v1/models/none" + kScope, "", 404},
      {get, "/v1/models/{name}/versions/{version}", "", "/v1/models/none/versions/1" + kScope, "", 404},
      {get, "/v1/models/{name}/versions/{version}/verify", "", "/v1/models/none/versions/1/verify" + kScope, "", 404},
      {get, "/v1/models/{name}/history", "", "/v1/models/none/history" + kScope, "", 404},
      {get, "/v1/models/{name}/alias-at", "", "/v1/models/none/alias-at" + kScope + "&alias=a&time=0", ""},
      {post, "/v1/models/{name}/promote", "", "/v1/models/none/promote" + kScope,
       R"({"version":1,"to":"champion","why":"x"})", 404},
      {post, "/v1/models/{name}/promote", "of another tenant", "/v1/models/none/promote?scope=/t/other/p/maps",
       R"({"version":1,"to":"champion","why":"x"})", 404},
      {post, "/v1/models/{name}/approval", "", "/v1/models/none/approval" + kScope, R"({"required":true})", 404},
      {get, "/v1/promotions", "", "/v1/promotions" + kScope, ""},
      {post, "/v1/promotions/{id}/decide", "", "/v1/promotions/1/decide" + kScope, R"({"approve":true})", 404},
      {get, "/v1/lineage", "", "/v1/lineage" + kScope + "&thing=run/1", "", 404},
      {post, "/v1/runs/export", "", "/v1/runs/export" + kScope, R"({"filter":"tags.x = 'none'"})", 404},
      {get, "/v1/runs/export/key", "", "/v1/runs/export/key" + kScope, ""},
      {post, "/v1/runs/import", "", "/v1/runs/import" + kScope, "none", 400},
      {get, "/v1/datasets", "", "/v1/datasets" + kScope, ""},
      {get, "/v1/datasets/{name}", "", "/v1/datasets/none" + kScope, "", 404},
      {del, "/v1/datasets/{name}", "", "/v1/datasets/none" + kScope, "", 404},
      {get, "/v1/datasets/{name}/versions", "", "/v1/datasets/none/versions" + kScope, "", 404},
      {del, "/v1/datasets/{name}/versions", "", "/v1/datasets/none/versions" + kScope, "", 404},
      {get, "/v1/datasets/{name}/versions/{version}", "", "/v1/datasets/none/versions/1" + kScope, "", 404},
      {del, "/v1/datasets/{name}/versions/{version}", "", "/v1/datasets/none/versions/1" + kScope, "", 404},
      {get, "/v1/datasets/{name}/versions/{version}/rows", "", "/v1/datasets/none/versions/1/rows" + kScope, "", 404},
      {get, "/v1/datasets/{name}/versions/{version}/export", "",
       "/v1/datasets/none/versions/1/export" + kScope + "&format=csv", "", 404},
      {get, "/v1/datasets/{name}/diff", "", "/v1/datasets/none/diff" + kScope + "&from=1&to=2", "", 404},
      {get, "/v1/datasets/{name}/checks", "", "/v1/datasets/none/checks" + kScope, "", 404},
      {post, "/v1/datasets/{name}/uploads", "", "/v1/datasets/some/uploads" + kScope, ""},
      {get, "/v1/datasets/{name}/uploads/{id}", "", "/v1/datasets/some/uploads/none" + kScope, "", 404},
      {get, "/v1/datasets/{name}/uploads/{id}/columns", "",
       "/v1/datasets/some/uploads/none/columns" + kScope + "&format=csv", "", 404},
      {put, "/v1/datasets/{name}/uploads/{id}/parts/{number}", "", "/v1/datasets/some/uploads/none/parts/0" + kScope,
       "x", 404},
      {post, "/v1/datasets/{name}/uploads/{id}/finish", "", "/v1/datasets/some/uploads/none/finish" + kScope,
       R"({"format":"csv"})", 404},
      {post, "/v1/datasets/sql", "", "/v1/datasets/sql" + kScope, R"({"sql":"SELECT 1"})"},
      {post, "/v1/features/train-set", "", "/v1/features/train-set" + kScope,
       R"({"service":"none","spine":"none","into":"none"})", 404},
      {post, "/v1/features/get", "", "/v1/features/get" + kScope, R"({"features":["none:x"],"entities":{"k":[1]}})",
       404},
      {post, "/v1/features/push", "", "/v1/features/push" + kScope, R"({"dataset":"none","rows":[{"a":1}]})", 404},
      {post, "/v1/features/flush", "", "/v1/features/flush" + kScope, R"({"dataset":"none"})", 404},
      {post, "/v1/features/materialize", "", "/v1/features/materialize" + kScope, R"({"view":"none"})", 404},
      {get, "/v1/features/views", "", "/v1/features/views" + kScope, ""},
      {get, "/v1/features/views/{name}/checks", "", "/v1/features/views/none/checks" + kScope, "", 404},
      {post, "/v1/features/remove-unused", "", "/v1/features/remove-unused" + kScope, "{}"},
      {post, "/feast/{tenant}/{project}/get-online-features", "", "/feast/acme/flights/get-online-features",
       R"({"features":["none:x"],"entities":{"k":[1]}})", 404},
      {post, "/feast/{tenant}/{project}/get-online-features", "of another tenant",
       "/feast/other/maps/get-online-features", R"({"features":["none:x"],"entities":{"k":[1]}})", 404},
      {post, "/feast/{tenant}/{project}/push", "", "/feast/acme/flights/push",
       R"({"push_source_name":"none","df":{"a":[1]}})", 404},
      {post, "/feast/{tenant}/{project}/write-to-online-store", "", "/feast/acme/flights/write-to-online-store",
       R"({"feature_view_name":"none","df":{"a":[1]}})", 404},
      {post, "/feast/{tenant}/{project}/materialize", "", "/feast/acme/flights/materialize",
       R"({"feature_views":["none"]})", 404},
      {post, "/feast/{tenant}/{project}/materialize-incremental", "", "/feast/acme/flights/materialize-incremental",
       R"({"feature_views":["none"]})", 404},
      {get, "/feast/{tenant}/{project}/health", "", "/feast/acme/flights/health", ""},
      {post, "/v1/jobs", "", "/v1/jobs" + kScope, R"({"jobs":[{"name":"x","spec":{"command":["true"]}}]})"},
      {post, "/v1/jobs", "of another tenant", "/v1/jobs?scope=/t/other/p/maps",
       R"({"jobs":[{"name":"x","spec":{"command":["true"]}}]})"},
      {get, "/v1/jobs", "", "/v1/jobs" + kScope, ""},
      {get, "/v1/jobs", "of another tenant", "/v1/jobs?scope=/t/other/p/maps", ""},
      {get, "/v1/jobs/{id}", "", "/v1/jobs/" + kToken + kScope, "", 404},
      {get, "/v1/jobs/{id}/logs", "", "/v1/jobs/" + kToken + "/logs" + kScope, "", 404},
      {get, "/v1/jobs/{id}/explain", "", "/v1/jobs/" + kToken + "/explain" + kScope, "", 404},
      {get, "/v1/jobs/{id}/events", "", "/v1/jobs/" + kToken + "/events" + kScope, "", 404},
      {post, "/v1/jobs/{id}/cancel", "", "/v1/jobs/" + kToken + "/cancel" + kScope, "{}", 404},
      {post, "/v1/jobs/{id}/requeue", "", "/v1/jobs/" + kToken + "/requeue" + kScope, "{}", 404},
      {get, "/v1/loop/policies", "", "/v1/loop/policies" + kScope, ""},
      {get, "/v1/loop/policies/{name}", "", "/v1/loop/policies/x" + kScope, "", 404},
      {get, "/v1/loop/history", "", "/v1/loop/history" + kScope, ""},
      {post, "/v1/loop/policies/{name}/resume", "", "/v1/loop/policies/x/resume" + kScope, "{}", 404},
      {get, "/v1/pipelines", "", "/v1/pipelines" + kScope, ""},
      {get, "/v1/pipelines/{name}", "", "/v1/pipelines/x" + kScope, "", 404},
      {post, "/v1/pipelines/{name}/run", "", "/v1/pipelines/x/run" + kScope, "{}", 404},
      {post, "/v1/pipelines/{name}/run", "of another tenant", "/v1/pipelines/x/run?scope=/t/other/p/maps", "{}", 404},
      {post, "/v1/pipelines/{name}/push", "not signed", "/v1/pipelines/x/push" + kScope, "{}", 403},
      {get, "/v1/pipelines/{name}/runs/{number}", "", "/v1/pipelines/x/runs/1" + kScope, "", 404},
      {get, "/v1/pipeline-runs", "", "/v1/pipeline-runs" + kScope, ""},
      {get, "/v1/pipeline-runs/{id}", "", "/v1/pipeline-runs/" + kToken + kScope, "", 404},
      {post, "/v1/pipeline-runs/{id}/cancel", "", "/v1/pipeline-runs/" + kToken + "/cancel" + kScope, "{}", 404},
      {post, "/v1/pipeline-runs/{id}/resume", "", "/v1/pipeline-runs/" + kToken + "/resume" + kScope, "{}", 404},
      {post, "/v1/pipeline-runs/{id}/steps/{step}/decide", "",
       "/v1/pipeline-runs/" + kToken + "/steps/x/decide" + kScope, R"({"approve":true})", 404},
      {get, "/v1/queues", "", "/v1/queues" + kScope, ""},
      {get, "/v1/nodes", "", "/v1/nodes" + kScope, ""},
      {post, "/v1/secrets", "", "/v1/secrets" + kScope, R"({"name":"key","value":"x"})"},
      {get, "/v1/secrets", "", "/v1/secrets" + kScope, ""},
      {del, "/v1/secrets/{name}", "", "/v1/secrets/none" + kScope, "", 404},
      {get, "/v1/pools", "", "/v1/pools" + kScope, ""},
      {get, "/v1/pools/{name}", "", "/v1/pools/none" + kScope, "", 404},
      {get, "/v1/serving/plan", "", "/v1/serving/plan", ""},
      {get, "/v1/serving/models/{sha256}", "", "/v1/serving/models/none", "", 404},
      {post, "/v1/serving/spaces/{space}", "", "/v1/serving/spaces/none", "{}", 404},
      {post, "/v1/serving/reports", "", "/v1/serving/reports", R"({"server":"s"})"},
      {get, "/v1/serving/endpoints", "", "/v1/serving/endpoints" + kScope, ""},
      {get, "/v1/serving/endpoints", "of another tenant", "/v1/serving/endpoints?scope=/t/other/p/maps", ""},
      {get, "/v1/serving/endpoints/{name}", "", "/v1/serving/endpoints/none" + kScope, "", 404},
      {get, "/v1/serving/endpoints/{name}/history", "", "/v1/serving/endpoints/none/history" + kScope, ""},
      {get, "/v1/serving/endpoints/{name}/served-at", "",
       "/v1/serving/endpoints/none/served-at" + kScope + "&time=2026-01-01T00:00:00Z", ""},
      {post, "/v1/serving/endpoints/{name}/shift", "", "/v1/serving/endpoints/none/shift" + kScope,
       R"({"weights":{"a":1}})", 404},
      {post, "/v1/serving/endpoints/{name}/rollback", "", "/v1/serving/endpoints/none/rollback" + kScope, "{}", 404},
      {post, "/v1/serving/predictions", "", "/v1/serving/predictions",
       R"({"tenant":"t","project":"p","endpoint":"none","columns":[{"name":"prediction_id","type":"text"}],)"
       R"("segments":[{"segment":"s","rows":1,"lines":"{}"}]})",
       404},
      {post, "/v1/serving/endpoints/{name}/labels", "", "/v1/serving/endpoints/none/labels" + kScope,
       R"({"labels":[{"prediction_id":"x","value":1}]})", 404},
      {post, "/v1/serving/watched", "", "/v1/serving/watched",
       R"({"tenant":"acme","project":"flights","endpoint":"none","segments":[{"segment":"x","watched":{"variant":"a",)"
       R"("version":1,"halvings":0,"rows":1,"looked_at":0,"from_us":1,"until_us":1,"sketches":"AQAAAAA="}}]})"},
      {get, "/v1/monitors", "", "/v1/monitors" + kScope, ""},
      {get, "/v1/findings", "", "/v1/findings" + kScope, ""},
      {get, "/v1/monitors/{name}", "", "/v1/monitors/none" + kScope, "", 404},
      {get, "/v1/monitors/{name}/findings", "", "/v1/monitors/none/findings" + kScope, "", 404},
      {get, "/v1/monitors/{name}/windows", "", "/v1/monitors/none/windows" + kScope, "", 404},
      {get, "/v1/monitors/{name}/performance", "", "/v1/monitors/none/performance" + kScope, "", 404},
      {get, "/v1/monitors/{name}/columns/{column}", "", "/v1/monitors/none/columns/x" + kScope, "", 404},
      {get, "/v1/serving/endpoints/{name}/predictions", "", "/v1/serving/endpoints/none/predictions" + kScope, "", 404},
      {get, "/v1/serving/endpoints/{name}/experiment", "", "/v1/serving/endpoints/none/experiment" + kScope, "", 404},
      {get, "/v1/usage/trace", "", "/v1/usage/trace" + kScope, ""},
      {get, "/v1/usage", "", "/v1/usage" + kScope, ""},
      {get, "/v1/usage", "of another tenant", "/v1/usage?scope=/t/other", ""},
      {get, "/v1/erasures", "", "/v1/erasures" + kScope, ""},
      {get, "/v1/erasures", "of another tenant", "/v1/erasures?scope=/t/other/p/maps", ""},
      {get, "/v1/erasures/{id}", "", "/v1/erasures/none" + kScope, "", 404},
      {post, "/v1/erasures", "of nobody", "/v1/erasures" + kScope, R"({"subject":""})", 400},
      {post, "/v1/erasures/{id}/finish", "", "/v1/erasures/none/finish" + kScope, "{}", 404},
      {post, "/v1/erasures/plan", "", "/v1/erasures/plan" + kScope, R"({"subject":"nobody"})"},
      {get, "/v1/retention", "", "/v1/retention" + kScope, ""},
      {get, "/v1/retention", "of another tenant", "/v1/retention?scope=/t/other/p/maps", ""},
      {post, "/v1/retention/run", "", "/v1/retention/run" + kScope, R"({"dry_run":true})"},
      {post, "/v1/retention/run", "everywhere", "/v1/retention/run", R"({"dry_run":true})"},
      {get, "/v1/alerts", "", "/v1/alerts" + kScope, ""},
      {get, "/v1/alerts/history", "", "/v1/alerts/history" + kScope, ""},
      {get, "/v1/alerts/rules", "", "/v1/alerts/rules" + kScope, ""},
      {get, "/v1/alerts/{id}", "", "/v1/alerts/1" + kScope, "", 404},
      {post, "/v1/alerts/{id}/ack", "", "/v1/alerts/1/ack" + kScope, "{}", 404},
      {get, "/v1/silences", "", "/v1/silences" + kScope, ""},
      {post, "/v1/silences", "", "/v1/silences" + kScope, R"({"match":"rule=x","for":"1h","reason":"x"})"},
      {del, "/v1/silences/{id}", "", "/v1/silences/999999" + kScope, "", 404},
      {post, "/v1/channels/{name}/test", "", "/v1/channels/none/test" + kScope, "", 404},
      {get, "/v1/alert-deliveries", "", "/v1/alert-deliveries" + kScope, ""},
      {post, "/v1/alert-deliveries/{id}/retry", "", "/v1/alert-deliveries/none/retry" + kScope, "", 404},
      {get, "/v1/webhooks", "", "/v1/webhooks" + kScope, ""},
      {post, "/v1/webhooks", "", "/v1/webhooks" + kScope, R"({"name":"x","url":"ftp://x","events":["promotion.done"]})",
       400},
      {del, "/v1/webhooks/{id}", "", "/v1/webhooks/none" + kScope, "", 404},
      {get, "/v1/webhooks/{id}/deliveries", "", "/v1/webhooks/none/deliveries" + kScope, "", 404},
      {post, "/v1/webhooks/{id}/deliveries/{delivery}/retry", "", "/v1/webhooks/none/deliveries/1/retry" + kScope, "",
       404},
      {post, "/v1/webhooks/{id}/test", "", "/v1/webhooks/none/test" + kScope, R"({"event":"promotion.done"})", 404},
  };
}

// Somebody who holds one role at one place.
struct Holder {
  std::string role, place, name;
  iam::Principal principal() const { return iam::Principal::parse("user/" + name); }
};

struct State {
  std::string name;
  bool valid;
};
const std::vector<State> kStates = {{"token", true},
                                    {"session", true},
                                    {"certificate", true},
                                    {"restricted", true},
                                    {"none", false},
                                    {"malformed", false},
                                    {"unknown token", false},
                                    {"wrong secret", false},
                                    {"revoked token", false},
                                    {"expired token", false},
                                    {"closed session", false},
                                    {"session as token", false},
                                    {"token as session", false},
                                    {"disabled user", false},
                                    {"unknown certificate", false}};

std::string golden_path() { return std::string(FALAJ_TESTDATA) + "/access_matrix.txt"; }

class AccessMatrix : public testing::Test {
 protected:
  static Settings settings(const std::string& data) {
    Settings s;
    s.data = data;
    s.rates = {1'000'000, 1'000'000, 1'000'000};
    return s;
  }

  template <class F>
  auto write(F&& work) -> std::invoke_result_t<F, sql::Writer&> {
    return plane_.platform().database.write({"user/test", "test.write", "/", ""}, std::forward<F>(work));
  }

  AccessMatrix() : plane_(settings(dir_.path()), {{"listen", "", "", "", "", ""}}, {}) {
    apply("{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE, backends: [local]}}");
    for (const auto& [tenant, project] : {std::pair("acme", "flights"), std::pair("other", "maps")}) {
      apply(fmt::format("{{apiVersion: falaj/v1, kind: Tenant, metadata: {{name: {}}}, spec: {{zones: [uae]}}}}",
                        tenant));
      apply(fmt::format(
          "{{apiVersion: falaj/v1, kind: Project, metadata: {{tenant: {}, name: {}}}, spec: {{zone: uae}}}}", tenant,
          project));
    }
    apply("{apiVersion: falaj/v1, kind: User, metadata: {tenant: acme, name: ada}, spec: {}}");
    apply("{apiVersion: falaj/v1, kind: User, metadata: {name: carol}, spec: {}}");
    make_whatever_was_deleted();
    write([&](sql::Writer& w) {
      for (const std::string place : {"/", "/t/acme/p/flights"}) {
        for (const auto& role : iam::built_in_roles()) {
          const Holder holder{role.name, place, role.name + (place == "/" ? "-everywhere" : "-in-project")};
          const std::string twin = holder.name + "-disabled";
          directory().put(w, iam::User{"", holder.name, "", "", false});
          directory().put(w, iam::User{"", twin, "", "", true});
          directory().put(
              w,
              iam::Binding{holder.name, role.name, {"user/" + holder.name, "user/" + twin}, iam::Scope::parse(place)});
          directory().put(w, iam::Certificate{print_of(holder).hex(), "user/" + holder.name});
          holders_.push_back(holder);
        }
      }
    });
    for (const auto& [tenant, project] : {std::pair("acme", "flights"), std::pair("other", "maps")})
      plane_.platform().track.create_run({TenantName::parse(tenant), ProjectName::parse(project)}, {},
                                         {"user/test", "run.create", "/", ""});
    for (const auto* where : {"/t/acme/p/flights", "/t/other/p/maps"})
      EXPECT_EQ(ask(Question{Method::post, fmt::format("/v1/blobs?scope={}&name=a", where), "bytes"}.by(
                        credential(holders_[4], "token")))
                    .status,
                200);
  }

  iam::Directory& directory() { return plane_.platform().directory; }
  void apply(std::string_view yaml) {
    plane_.platform().resources.apply({"user/test", "", "", ""}, resource::read_documents("test", yaml),
                                      [](std::string_view, const iam::Scope&) { return std::nullopt; });
  }
  void make_whatever_was_deleted() {
    apply(kPolicy);
    apply(kZone);
  }
  static Digest print_of(const Holder& holder) { return crypto::sha256(as_bytes(holder.name)); }

  std::string issue(const std::string& user, std::int64_t ttl_us, std::vector<iam::Restriction> restrictions = {}) {
    return write([&](sql::Writer& w) {
             return directory().issue_token(w, {iam::Principal::parse("user/" + user), "test", restrictions, ttl_us});
           })
        .text;
  }

  // The text of a credential of the holder in that state.
  std::string credential(const Holder& holder, const std::string& state) {
    constexpr std::int64_t kHour = 3'600'000'000;
    if (state == "restricted") return issue(holder.name, kHour, {{{"*"}, iam::Scope::parse("/t/other")}});
    if (state == "session" || state == "closed session" || state == "session as token") {
      const auto opened = write([&](sql::Writer& w) { return directory().open_session(w, holder.principal()); });
      if (state == "closed session") write([&](sql::Writer& w) { directory().close_session(w, opened.id); });
      return opened.text;
    }
    if (state == "disabled user") return issue(holder.name + "-disabled", kHour);
    if (state == "expired token") return issue(holder.name, 1);
    const auto token = issue(holder.name, kHour);
    const auto parsed = *iam::parse_credential(iam::CredentialKind::token, token);
    auto changed = parsed;
    if (state == "unknown token") changed.id.bits.low ^= 1;
    if (state == "wrong secret") changed.secret[0] ^= std::byte{1};
    if (state == "malformed") return token.substr(0, token.size() - 1);
    if (state == "revoked token") write([&](sql::Writer& w) { directory().revoke_token(w, parsed.id); });
    return iam::format_credential(iam::CredentialKind::token, changed);
  }

  Question as(Question question, const Holder& holder, const std::string& state) {
    if (state == "none") return question;
    if (state == "certificate" || state == "unknown certificate") {
      question.certificate = print_of(holder);
      if (state != "certificate") question.certificate->bytes[0] ^= std::byte{1};
      return question;
    }
    auto& kept = credentials_[{holder.name, state}];
    if (kept.empty()) kept = credential(holder, state);
    if (state == "session" || state == "closed session" || state == "token as session")
      return question.with("Cookie", "theme=dark; falaj_session=" + kept);
    return question.by(kept);
  }

  api::Answer ask(const Question& question) { return api::ask(plane_.service(), question); }

  // yes, no, 401; "none" for a list in which the caller may see nothing.
  std::string outcome_of(const Example& example, const api::Answer& answer) {
    if (answer.status == 401) return "401";
    if (answer.status == 403) return "no";
    EXPECT_TRUE(answer.status < 500 || answer.status == 503) << example.name() << ": " << answer.body;
    EXPECT_NE(answer.status, 429) << example.name();
    if (answer.status != 200 || !answer.body.starts_with('{')) return "yes";
    const auto value = answer.json();
    const auto* items = value.as_object().if_contains("items");
    const auto* yaml = value.as_object().if_contains("yaml");
    return (items && items->as_array().empty()) || (yaml && yaml->as_string().empty()) ? "none" : "yes";
  }

  // The calls of another protocol all name their project in the same way, and the head alone decides.
  std::vector<Example> all_examples() const {
    auto all = examples();
    for (const auto& route : plane_.routes().all()) {
      if (!api::mlflow::canonical(route->path)) continue;
      const bool open = route->permission.kind() == api::Permission::Kind::anyone;
      std::string path;
      for (const auto element : split(route->path.substr(1), '/'))
        path += element.starts_with('{') ? "/1" : fmt::format("/{}", element);
      const std::string body = route->method == Method::get ? "" : "{}";
      for (const auto& [note, project] : {std::pair("", "acme/flights"), std::pair("of another tenant", "other/maps")})
        if (!open || note[0] == '\0')
          all.push_back({route->method, std::string(route->path), note,
                         open ? path : fmt::format("/mlflow/{}{}", project, path), body, 0});
    }
    return all;
  }

  // One line of the table.
  std::vector<std::string> walk(const Example& example, const State& state) {
    std::vector<std::string> line;
    for (const auto& holder : holders_) {
      Question question{example.method, example.target, example.body};
      const auto n = question.body.find("'N'");
      if (n != std::string::npos) question.body.replace(n, 3, fmt::format("'{}'", ++checked_));
      const auto answer = ask(as(question, holder, state.name));
      if (example.route == "/v1/logout") credentials_.erase({holder.name, state.name});  // it is worth nothing now
      ++checked_;
      const auto outcome = outcome_of(example, answer);
      const bool refused = outcome == "no" || outcome == "401";
      (refused ? refused_ : served_).insert(answer.request_id);
      if (holder.role == "admin" && holder.place == "/" && state.name == "token" && example.admin != 0) {
        EXPECT_EQ(answer.status, example.admin) << example.name() << ": " << answer.body;
      }
      if (example.method == Method::del && answer.status == 200) make_whatever_was_deleted();
      line.push_back(outcome);
    }
    return line;
  }

  // The ids of all calls that the audit log says were refused.
  std::set<std::string> recorded_refusals() {
    std::set<std::string> out;
    audit::Filter filter;
    filter.outcome = "denied";
    std::optional<std::int64_t> older;
    do {
      const auto page = plane_.platform().audit.log(filter, older, 1000);
      for (const auto& record : page.records) out.insert(record.request_id);
      older = page.older;
    } while (older);
    return out;
  }

  std::string header() const {
    std::string text = fmt::format("{:<58}", "");
    for (const auto& holder : holders_) text += fmt::format(" {:>9}", holder.role);
    return text + "\n";
  }

  sys::TempDir dir_;
  ControlPlane plane_;
  std::vector<Holder> holders_;
  std::map<std::pair<std::string, std::string>, std::string> credentials_;
  std::set<std::string> refused_, served_;
  std::size_t checked_ = 0;
};

TEST_F(AccessMatrix, IsTheOneInTheRepository) {
  const auto all = all_examples();
  std::map<std::string, std::string> tables;  // text of a table, to the states it holds for
  std::vector<std::string> order;
  for (const auto& state : kStates) {
    std::string table;
    for (const auto& example : all) {
      table += fmt::format("{:<58}", example.name());
      for (const auto& outcome : walk(example, state)) table += fmt::format(" {:>9}", outcome);
      table += "\n";
    }
    auto& states = tables[table];
    if (states.empty()) order.push_back(table);
    states += (states.empty() ? "" : ", ") + state.name;
  }
  std::string text =
      "# Who may call what. yes: gets past every check of permission; no: denied; 401: not known;\n"
      "# none: a list in which the caller may see nothing. The first five columns hold their role everywhere,\n"
      "# the other five only at /t/acme/p/flights. 'restricted' is a token that is good for /t/other only.\n";
  for (const auto& table : order) text += fmt::format("\n[{}]\n{}{}", tables[table], header(), table);

  const auto recorded = recorded_refusals();
  for (const auto& id : refused_) EXPECT_TRUE(recorded.contains(id)) << id << " was refused but left no record";
  for (const auto& id : served_) EXPECT_FALSE(recorded.contains(id)) << id << " was served but is recorded as refused";
  fmt::print("checked {} combinations of {} requests, {} holders of roles and {} states of credentials\n",
             refused_.size() + served_.size(), all.size(), holders_.size(), kStates.size());

  if (std::getenv("FALAJ_UPDATE_GOLDEN")) std::ofstream(golden_path()) << text;
  std::ifstream in(golden_path());
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  const auto ours = split(text, '\n'), theirs = split(golden, '\n');
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i)
    EXPECT_EQ(i < ours.size() ? ours[i] : "(no line)", i < theirs.size() ? theirs[i] : "(no line)") << "line " << i + 1;
}

TEST_F(AccessMatrix, HasARequestForEveryRoute) {
  std::set<std::string> wanted, there;
  for (const auto& route : plane_.routes().all())
    wanted.insert(fmt::format("{} {}", net::name(route->method), route->path));
  for (const auto& example : all_examples()) {
    there.insert(fmt::format("{} {}", net::name(example.method), example.route));
    const auto path = example.target.substr(0, example.target.find('?'));
    const auto address = api::mlflow::canonical(path);
    const auto match = plane_.routes().match(example.method, address ? address->path : path);
    ASSERT_NE(match.route, nullptr) << example.name();
    EXPECT_EQ(match.route->path, example.route);
  }
  EXPECT_EQ(wanted, there) << "a new route needs a line in examples()";
}

}  // namespace
}  // namespace falaj::app
