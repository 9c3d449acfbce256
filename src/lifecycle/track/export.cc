// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/export.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/export_manifest.h"
#include "lifecycle/track/export_run.h"
#include "lifecycle/track/export_tar.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

using Sink = std::function<void(BytesView)>;

constexpr std::size_t kEntriesPage = 1000, kPointsPage = 32'768, kPieceBytes = 256 * 1024;

// One moment of the database, read as often as needed.
class Exporter {
 public:
  Exporter(sql::Reader& reader, vault::Vault& vault, const ExportRequest& request)
      : reader_(reader), vault_(vault), request_(request) {}

  ExportManifest manifest() {
    ExportManifest out;
    out.instance = request_.instance;
    out.tenant = request_.where.tenant.str();
    out.project = request_.where.project.str();
    out.by = request_.by;
    out.created_ms = request_.now_ms;
    std::set<std::int64_t> experiments;
    for (const auto& id : request_.run_ids) {
      const auto row = need_run(reader_, request_.where, id);
      out.runs.push_back(id);
      if (experiments.insert(row.experiment).second) out.experiments.push_back(experiment(row));
      const auto run = exported(row);
      const auto root = fmt::format("runs/{}", id);
      add(out, member(root, "run.json", [&](const Sink& sink) { sink(as_bytes(run_text(run))); }));
      if (!run.series.empty()) add(out, member(root, "points.csv", [&](const Sink& sink) { points(row, sink); }));
      for (const auto& model : run.logged_models) models_.insert(model.model_id);
    }
    for (const auto& id : request_.run_ids) add_artifacts(out, fmt::format("runs/{}", id), run_artifact(id, ""));
    for (const auto& id : models_) add_artifacts(out, fmt::format("models/{}", id), model_artifact(id, ""));
    std::sort(out.experiments.begin(), out.experiments.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return out;
  }

  // The bytes of the manifest's next member. Requires: called for each in order.
  void write(const ExportMember& member, const Sink& sink) {
    const auto name = parse_member_name(member.name);
    if (name.is_file()) return artifact(artifacts_[at_++], sink);
    const auto row = need_run(reader_, request_.where, name.id);
    if (name.kind == MemberName::Kind::points) return points(row, sink);
    sink(as_bytes(run_text(exported(row))));
  }

 private:
  struct SeriesOf {
    ExportedSeries name;
    std::int64_t series = 0;
  };

  static std::string run_text(const ExportedRun& run) {
    auto text = to_text(run);
    if (text.size() > kExportedRunBytesMax)
      throw Error(Code::invalid, fmt::format("run {} is too large for an export: {} bytes besides points and files",
                                             run.run_id, text.size()));
    return text;
  }

  std::vector<SeriesOf> series_of(const RunRow& row) {
    return reader_.all(
        "SELECT key, model, dataset, digest, series FROM track_metric WHERE experiment = ? AND place = ?"
        " ORDER BY key, model, dataset, digest",
        {row.experiment, row.place}, [](const sql::Row& r) {
          return SeriesOf{
              {std::string(r.text(0)), std::string(r.text(1)), std::string(r.text(2)), std::string(r.text(3))},
              r.integer(4)};
        });
  }

  ExportExperiment experiment(const RunRow& row) {
    ExportExperiment out;
    out.name = need_experiment(reader_, request_.where, row.info.experiment).experiment.name;
    for (const auto& tag : experiment_tags(reader_, row.experiment)) out.tags[tag.key] = tag.value;
    return out;
  }

  ExportedRun exported(const RunRow& row) {
    const auto run = load_run(reader_, row);
    ExportedRun out;
    out.run_id = run.info.run_id;
    out.experiment = need_experiment(reader_, request_.where, run.info.experiment).experiment.name;
    out.name = run.info.name;
    out.user = run.info.user;
    out.status = track::name(run.info.status);
    out.stage = track::name(run.info.stage);
    out.start_ms = run.info.start_ms;
    out.end_ms = run.info.end_ms;
    for (const auto& param : run.params) out.params[param.key] = param.value;
    for (const auto& tag : run.tags) out.tags[tag.key] = tag.value;
    for (const auto& input : run.datasets) {
      const auto& d = input.dataset;
      out.datasets.push_back({d.name, d.digest, d.source_type, d.source, d.schema, d.profile, {}});
      for (const auto& tag : input.tags) out.datasets.back().tags[tag.key] = tag.value;
    }
    out.model_inputs = run.model_inputs;
    for (const auto& model : run.model_outputs) out.model_outputs.push_back({model.model_id, model.step});
    for (const auto& series : series_of(row)) out.series.push_back(series.name);
    for (const auto& model_row : logged_models_of_run(reader_, request_.where, out.run_id)) {
      const auto model = load_logged_model(reader_, model_row);
      ExportedLoggedModel one{model.model_id,
                              model.name,
                              model.type,
                              model.source_run_id,
                              std::string(track::name(model.status)),
                              std::string(track::name(model.stage)),
                              model.created_ms,
                              model.updated_ms,
                              {},
                              {}};
      for (const auto& param : model.params) one.params[param.key] = param.value;
      for (const auto& tag : model.tags) one.tags[tag.key] = tag.value;
      out.logged_models.push_back(std::move(one));
    }
    // One run, one text, in whatever order its rows lie.
    std::sort(out.datasets.begin(), out.datasets.end(),
              [](const auto& a, const auto& b) { return std::tie(a.name, a.digest) < std::tie(b.name, b.digest); });
    std::sort(out.model_inputs.begin(), out.model_inputs.end());
    std::sort(out.model_outputs.begin(), out.model_outputs.end(),
              [](const auto& a, const auto& b) { return a.model_id < b.model_id; });
    return out;
  }

  void points(const RunRow& row, const Sink& sink) {
    std::string text(kPointsHeader);
    const auto all = series_of(row);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::optional<Point> after;
      do {
        const auto page = history_page(reader_, {&all[i].series, 1}, after, kPointsPage);
        for (const auto& point : page.points) {
          append_csv(text, i, point);
          if (text.size() < kPieceBytes) continue;
          sink(as_bytes(text));
          text.clear();
        }
        after = page.after;
      } while (after);
    }
    if (!text.empty()) sink(as_bytes(text));
  }

  void artifact(const vault::Entry& entry, const Sink& sink) {
    const auto reader = vault_.open(request_.where, entry, 0, entry.bytes);
    for (Bytes piece; !(piece = reader->next()).empty();) sink(piece);
  }

  template <class F>
  static ExportMember member(const std::string& root, std::string_view path, F write) {
    crypto::Sha256 hash;
    ExportMember out{fmt::format("{}/{}", root, path), 0, "", {}};
    write([&](BytesView piece) {
      hash.update(piece);
      out.bytes += static_cast<std::int64_t>(piece.size());
    });
    out.sha256 = hash.finish().hex();
    return out;
  }

  // The files below `from` in the vault, as files below `root`.
  void add_artifacts(ExportManifest& out, const std::string& root, const std::string& from) {
    const auto below = from + "/";
    for (std::string after;;) {
      const auto entries = vault_.list(reader_, request_.where, below, after, kEntriesPage);
      for (const auto& entry : entries) {
        auto one = member(root, "artifacts/" + entry.name.substr(below.size()),
                          [&](const Sink& sink) { artifact(entry, sink); });
        one.content = entry.content.hex();
        add(out, std::move(one));
        artifacts_.push_back(entry);
        after = entry.name;
      }
      if (entries.size() < kEntriesPage) return;
    }
  }

  static void add(ExportManifest& out, ExportMember member) {
    if (out.members.size() >= kExportMembersMax)
      throw Error(Code::invalid,
                  fmt::format("one export has at most {} files: export fewer runs at once", kExportMembersMax));
    out.members.push_back(std::move(member));
  }

  sql::Reader& reader_;
  vault::Vault& vault_;
  const ExportRequest& request_;
  std::set<std::string> models_;
  std::vector<vault::Entry> artifacts_;
  std::size_t at_ = 0;
};

// Writes a member, and zeros to the end of its last block.
template <class F>
void put(const TarMember& member, std::int64_t unix_s, const Sink& sink, F write) {
  sink(tar_header(member, unix_s));
  std::uint64_t written = 0;
  write([&](BytesView piece) {
    written += piece.size();
    sink(piece);
  });
  CHECK(written == member.bytes, "one moment gave two sizes");
  sink(Bytes(tar_padding(member.bytes)));
}

}  // namespace

void export_runs(sql::Database& database, vault::Vault& vault, const ExportRequest& request,
                 const crypto::Signer& signer, const std::function<void(std::uint64_t bytes)>& begin,
                 const std::function<void(BytesView)>& sink) {
  if (request.run_ids.empty()) throw Error(Code::not_found, "no run is to be exported");
  if (request.run_ids.size() > kExportRunsMax)
    throw Error(Code::invalid, fmt::format("one export has at most {} runs, not {}: export fewer at once",
                                           kExportRunsMax, request.run_ids.size()));
  const vault::Vault::Hold hold(vault);
  database.read([&](sql::Reader& reader) {
    Exporter exporter(reader, vault, request);
    const auto manifest = exporter.manifest();
    const auto text = to_text(manifest);
    if (text.size() > kExportManifestBytesMax)
      throw Error(Code::invalid, "the export names too many files: export fewer runs at once");
    const auto signature = sign_export(text, signer);
    const TarMember first{std::string(kExportManifestName), text.size()},
        second{std::string(kExportSignatureName), signature.size()};
    const auto tar_of = [](const ExportMember& m) { return TarMember{m.name, static_cast<std::uint64_t>(m.bytes)}; };
    std::uint64_t bytes = tar_bytes(first) + tar_bytes(second) + kTarEndBytes;
    for (const auto& member : manifest.members) bytes += tar_bytes(tar_of(member));
    begin(bytes);

    const auto unix_s = request.now_ms / 1000;
    put(first, unix_s, sink, [&](const Sink& to) { to(as_bytes(text)); });
    put(second, unix_s, sink, [&](const Sink& to) { to(as_bytes(signature)); });
    for (const auto& member : manifest.members)
      put(tar_of(member), unix_s, sink, [&](const Sink& to) { exporter.write(member, to); });
    sink(Bytes(kTarEndBytes));
  });
}

}  // namespace falaj::track
