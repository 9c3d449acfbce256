// SPDX-License-Identifier: Apache-2.0
// runs from one platform to another: export, import

#include <atomic>
#include <future>
#include <set>

#include <fmt/format.h>

#include "api/call.h"
#include "api/project.h"
#include "api/runs.h"
#include "api/turn.h"
#include "foundation/base/log.h"
#include "foundation/base/produced.h"
#include "lifecycle/track/export.h"
#include "lifecycle/track/export_manifest.h"
#include "lifecycle/track/import.h"
#include "lifecycle/track/removal.h"

namespace falaj::api {
namespace {

constexpr int kTransfersMax = 4;  // each holds a view of the database, or a worker, for as long as it takes
constexpr BodyLimit kExportBody{std::uint64_t{1} << 44};
constexpr std::string_view kTarType = "application/x-tar";

struct ExportAsked {
  std::vector<std::string> runs, experiments;
  std::string filter;
};
struct ImportQuery {
  std::string key, experiment;
};
struct ImportedOut {
  std::vector<std::string> experiments;
  std::int64_t runs = 0, made = 0, changed = 0, points = 0, files = 0, bytes = 0;
};
struct SigningKey {
  std::string public_key;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<ExportAsked> {
  using T = ExportAsked;
  static constexpr std::string_view name = "RunExport";
  static Fields fields() {
    return {field("runs", &T::runs, "Their ids; or what finds them:").length(0, track::kExportRunsMax),
            field("experiments", &T::experiments, "Names or numbers; all active ones when absent."),
            field("filter", &T::filter, "Such as: metrics.loss < 0.3 AND params.depth = '5'.")};
  }
};
template <>
struct Shape<ImportQuery> {
  using T = ImportQuery;
  static constexpr std::string_view name = "RunImportQuery";
  static Fields fields() {
    return {field("key", &T::key, "A public key to trust besides this platform's own, 64 hexadecimal digits."),
            field("experiment", &T::experiment, "Where new runs go; else to the experiment of the name they had.")
                .length(0, 4 * track::kExperimentNameBytesMax)};
  }
};
template <>
struct Shape<ImportedOut> {
  using T = ImportedOut;
  [[maybe_unused]] static constexpr std::string_view name = "ImportedRuns";
  static Fields fields() {
    return {field("experiments", &T::experiments, "Made for them."),
            field("runs", &T::runs, "In the file."),
            field("made", &T::made, "That were not here."),
            field("changed", &T::changed, "That were, and got something."),
            field("points", &T::points, "New ones."),
            field("files", &T::files, "New or changed artifacts."),
            field("bytes", &T::bytes, "Of those.")};
  }
};
template <>
struct Shape<SigningKey> {
  static constexpr std::string_view name = "SigningKey";
  static Fields fields() {
    return {
        field("public_key", &SigningKey::public_key, "Ed25519, 64 hexadecimal digits: what others trust with --key.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

std::vector<std::string> runs_of(track::Track& track, const track::Where& where, const ExportAsked& in) {
  if (!in.runs.empty()) {
    if (!in.experiments.empty() || !in.filter.empty())
      throw Error(Code::invalid, "runs: give either the runs, or what finds them");
    std::vector<std::string> ids;
    std::set<std::string_view> seen;
    for (const auto& id : in.runs)
      if (seen.insert(id).second) ids.push_back(id);
    return ids;
  }
  track::SearchRuns search;
  search.filter = in.filter;
  search.order_by = {"attributes.start_time ASC"};
  search.limit = track::kExportRunsMax;
  for (const auto& text : in.experiments) search.experiments.push_back(experiment_of(track, where, text));
  if (in.experiments.empty()) {
    track::SearchExperiments all;
    all.limit = track::kSearchMax;
    for (const auto& e : track.search_experiments(where, all).items) search.experiments.push_back(e.number);
  }
  std::vector<std::string> ids;
  const bool more = track.search_runs(where, search, [&](const track::Run& run) { ids.push_back(run.info.run_id); });
  if (more)
    throw Error(Code::invalid,
                fmt::format("one export has at most {} runs: choose fewer, by experiment or filter", ids.size()));
  if (ids.empty()) throw Error(Code::not_found, "no run matches");
  return ids;
}

net::Response send_export(Platform& platform, Call& call, const ExportAsked& in, Turns& turns) {
  auto turn = std::make_shared<Turn>(turns);
  const auto where = project_of(call);
  track::ExportRequest request{where, runs_of(platform.track, where, in), platform.public_url, call.actor(),
                               platform.clock.wall().count() / 1000};
  auto act = call.act(where.scope().str());
  act.details = canonical(json::object{{"runs", request.run_ids.size()}});
  platform.database.write(act, [](sql::Writer&) {});  // on record before the first byte leaves

  // The answer begins once everything was read and its size is known, so that what is wrong is still an error.
  auto size = std::make_shared<std::promise<std::uint64_t>>();
  auto told = size->get_future();
  auto produced = std::make_shared<Produced>([&platform, request = std::move(request), size, turn](const auto& sink) {
    bool begun = false;
    try {
      track::export_runs(
          platform.database, platform.vault, request, platform.models.signer(),
          [&](std::uint64_t bytes) {
            begun = true;
            size->set_value(bytes);
          },
          sink);
    } catch (...) {
      if (!begun) size->set_exception(std::current_exception());
      throw;
    }
  });
  net::Response response;
  response.headers.add("Content-Type", kTarType);
  response.body = net::StreamBody{[produced] { return produced->next(); }, told.get()};
  return response;
}

ImportedOut receive_import(Platform& platform, Call& call, const ImportQuery& in, net::BodyReader& body, Turns& turns) {
  const Turn turn(turns);
  const auto where = project_of(call);
  call.require("experiment.write", where.scope());
  track::ImportRequest request{where, {platform.models.public_key()}, in.experiment};
  if (!in.key.empty()) request.trusted.push_back(track::parse_public_key(in.key));
  auto act = call.act(where.scope().str());
  // What is left of a run that was removed for good must be gone before the same run comes back: its files have the
  // names that the new ones get.
  track::finish_removals(platform.database, platform.vault, act.actor);
  const auto done = track::import_runs(
      platform.track, platform.vault, request, [&](std::span<std::byte> out) { return body.read(out); }, act);
  act.details =
      canonical(json::object{{"manifest", done.manifest.hex()}, {"made", done.made}, {"changed", done.changed}});
  platform.database.write(act, [](sql::Writer&) {});
  log::info("runs_imported", {{"runs", done.runs}, {"made", done.made}, {"points", done.points}});
  return {done.experiments, done.runs, done.made, done.changed, done.points, done.files, done.bytes};
}

}  // namespace

void add_run_transfer_routes(Routes& routes, Platform& platform) {
  auto turns = std::make_shared<Turns>(kTransfersMax, "exports and imports of runs");
  routes.add_download<ExportAsked>(
      {Method::post, "/v1/runs/export", Permission::of("run.read", "{scope}"), BodyLimit{1 << 20},
       Audit::verb("run.export"), Place::worker,
       "Runs with everything they logged as one signed file, which another platform can import."},
      std::string(kTarType),
      [&platform, turns](Call& call, const ExportAsked& in) { return send_export(platform, call, in, *turns); });
  routes.add_stream<ImportQuery>(
      {Method::post, "/v1/runs/import", Permission::of("run.write", "{scope}"), kExportBody, Audit::verb("run.import"),
       Place::worker,
       "Merge an export into the project: what is there stays, what is new is added, all of it verified first."},
      "", [&platform, turns](Call& call, const ImportQuery& in, net::Request& request) {
        return detail::json_response(encode(receive_import(platform, call, in, request.body, *turns)));
      });
  routes.add<Nothing, SigningKey>(
      {Method::get, "/v1/runs/export/key", Permission::of("run.read", "{scope}"), BodyLimit::none(), Audit::read(),
       Place::here, "The public key that exports of this platform are signed with."},
      [&platform](Call&, const Nothing&) { return SigningKey{to_hex(platform.models.public_key())}; });
}

}  // namespace falaj::api
