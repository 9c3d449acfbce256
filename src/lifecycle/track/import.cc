// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/import.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/export_manifest.h"
#include "lifecycle/track/export_run.h"
#include "lifecycle/track/export_tar.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

constexpr std::size_t kRunBytesMax = std::size_t{256} << 20;  // packed, in memory at once

// The members of an export in the order of its manifest, each compared with what the manifest says.
class Members {
 public:
  Members(TarReader& tar, const ExportManifest& manifest) : tar_(tar), manifest_(manifest) {}

  // The next one; nothing when all were read and the file has ended. The one before must have been read to its end.
  const ExportMember* next() {
    finish();
    const auto found = tar_.next();
    if (at_ == manifest_.members.size()) {
      if (found) refuse(fmt::format("'{}' is not in the manifest", found->name.substr(0, 200)));
      return nullptr;
    }
    current_ = &manifest_.members[at_++];
    if (!found) refuse(fmt::format("'{}' is missing", current_->name));
    if (found->name != current_->name)
      refuse(fmt::format("'{}' stands where '{}' should", found->name.substr(0, 200), current_->name));
    if (found->bytes != static_cast<std::uint64_t>(current_->bytes))
      refuse(
          fmt::format("'{}' has {} bytes, not the {} of the manifest", current_->name, found->bytes, current_->bytes));
    return current_;
  }
  std::size_t read(std::span<std::byte> out) {
    const auto n = tar_.read(out);
    hash_.update(out.first(n));
    return n;
  }
  std::string read_all(std::size_t bytes_max) {
    if (static_cast<std::uint64_t>(current_->bytes) > bytes_max)
      refuse(fmt::format("'{}' has more than {} bytes", current_->name, bytes_max));
    std::string text(static_cast<std::size_t>(current_->bytes), '\0');
    auto rest = std::as_writable_bytes(std::span(text));
    while (!rest.empty()) rest = rest.subspan(read(rest));
    finish();
    return text;
  }
  void skip() {
    std::byte unwanted[16 * 1024];
    while (read(unwanted) > 0) {
    }
  }
  void finish() {
    if (!current_) return;
    if (hash_.finish().hex() != current_->sha256) refuse(fmt::format("'{}' is not what was signed", current_->name));
    current_ = nullptr;
  }
  bool more_runs() const {
    return at_ < manifest_.members.size() && !parse_member_name(manifest_.members[at_].name).is_file();
  }
  bool points_follow(const std::string& run_id) const {
    return at_ < manifest_.members.size() && manifest_.members[at_].name == fmt::format("runs/{}/points.csv", run_id);
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(Code::invalid, "not the export that was signed: " + why);
  }
  TarReader& tar_;
  const ExportManifest& manifest_;
  std::size_t at_ = 0;
  const ExportMember* current_ = nullptr;
  crypto::Sha256 hash_;
};

// A run with its points packed, as bytes: what is kept until the whole file is known to be good.
Bytes staged(Track& track, const Where& where, Members& members, std::set<std::string>& models) {
  const auto* member = members.next();
  const auto id = parse_member_name(member->name).id;
  ByteWriter out;
  const auto text = members.read_all(kExportedRunBytesMax);
  const auto run = parse_exported_run(text);
  if (run.run_id != id) throw Error(Code::invalid, fmt::format("the file of run {} is of run {}", id, run.run_id));
  track.check_merge(where, run);
  for (const auto& model : run.logged_models) models.insert(model.model_id);
  out.text(text);
  if (!members.points_follow(id)) return out.take();

  members.next();
  PointsReader points([&](std::span<std::byte> to) { return members.read(to); }, run.series.size());
  std::size_t series = 0;
  std::vector<Point> block;
  const auto flush = [&] {
    if (block.empty()) return;
    out.u32(static_cast<std::uint32_t>(series));
    out.blob(pack(block));
    block.clear();
    if (out.bytes().size() > kRunBytesMax)
      throw Error(Code::invalid, fmt::format("run {} has more points than can be imported", id));
  };
  while (const auto line = points.next()) {
    if (line->series != series || block.size() == kPointsPerBlockMax) flush();
    series = line->series;
    block.push_back(line->point);
  }
  flush();
  return out.take();
}

// All runs one after another in the vault, without a name.
class Staging {
 public:
  Staging(Track& track, vault::Vault& vault, const Where& where, Members& members, const sql::Act& act)
      : vault_(vault), where_(where) {
    Bytes run;
    std::size_t at = 0;
    const auto source = [&](std::span<std::byte> out) -> std::size_t {
      if (at == run.size()) {
        if (!members.more_runs()) return 0;
        run = staged(track, where, members, models_);
        at = 0;
        sizes_.push_back(run.size());
      }
      const auto n = std::min(out.size(), run.size() - at);
      std::memcpy(out.data(), run.data() + at, n);
      at += n;
      return n;
    };
    entry_ = vault.put_unnamed(where, source, act);
  }

  const std::set<std::string>& models() const { return models_; }  // that the runs made

  // Each run again, in order.
  void each(const std::function<void(const ExportedRun&, std::span<const ExportedBlock>)>& work) {
    const auto reader = vault_.open(where_, entry_, 0, entry_.bytes);
    Bytes waiting;
    for (const auto size : sizes_) {
      while (waiting.size() < size) {
        const auto piece = reader->next();
        if (piece.empty()) throw Error(Code::corrupt, "the runs that were kept for the import are not all there");
        waiting.insert(waiting.end(), piece.begin(), piece.end());
      }
      ByteReader in(BytesView(waiting).first(size));
      const auto run = parse_exported_run(in.text());
      std::vector<ExportedBlock> blocks;
      while (in.left() > 0) {
        const auto series = in.u32();
        const auto points = in.blob();
        blocks.push_back({series, {points.begin(), points.end()}});
      }
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(size));
      work(run, blocks);
    }
  }

 private:
  vault::Vault& vault_;
  const Where where_;
  std::vector<std::size_t> sizes_;
  std::set<std::string> models_;
  vault::Entry entry_;
};

std::optional<vault::Entry> find_artifact(vault::Vault& vault, const Where& where, const std::string& name) {
  try {
    return vault.info(where, name);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return std::nullopt;
  }
}

// All files appear in one write, once the last byte of the export was read.
void put_artifacts(vault::Vault& vault, const Where& where, Members& members, const std::set<std::string>& models,
                   Imported& out, const sql::Act& act) {
  const auto next = [&]() -> std::optional<vault::NewFile> {
    while (const auto* member = members.next()) {
      const auto parsed = parse_member_name(member->name);
      const bool of_model = parsed.kind == MemberName::Kind::model_artifact;
      if (of_model && !models.contains(parsed.id))
        throw Error(Code::invalid, fmt::format("'{}' is of a logged model that no run of the file has", member->name));
      auto name = of_model ? model_artifact(parsed.id, parsed.path) : run_artifact(parsed.id, parsed.path);
      if (const auto there = find_artifact(vault, where, name); there && there->content.hex() == *member->content) {
        members.skip();
        continue;
      }
      return vault::NewFile{std::move(name), static_cast<std::uint64_t>(member->bytes),
                            [&members](std::span<std::byte> to) { return members.read(to); }};
    }
    return std::nullopt;
  };
  const auto batch = vault.put_many(where, std::nullopt, next, act);
  out.files = static_cast<std::int64_t>(batch.files);
  out.bytes = static_cast<std::int64_t>(batch.bytes);
}

std::optional<Experiment> find_experiment(Track& track, const Where& where, const std::string& name) {
  try {
    return track.experiment_by_name(where, name);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return std::nullopt;
  }
}

void refuse_deleted(Track& track, const Where& where, const std::string& name) {
  const auto found = find_experiment(track, where, name);
  if (found && found->stage != Stage::active)
    throw Error(Code::conflict, fmt::format("the experiment '{}' is deleted here: restore it first", name));
}

// Made when missing; one that is there keeps its tags.
std::int64_t experiment_for(Track& track, const Where& where, const ExportExperiment& wanted, Imported& out,
                            const sql::Act& act) {
  refuse_deleted(track, where, wanted.name);
  if (const auto found = find_experiment(track, where, wanted.name)) return found->number;
  std::vector<KeyValue> tags;
  for (const auto& [key, value] : wanted.tags) tags.push_back({key, value});
  const auto number = track.create_experiment(where, wanted.name, tags, act);
  out.experiments.push_back(wanted.name);
  return number;
}

bool is_there(Track& track, const Where& where, const std::string& run_id) {
  try {
    track.run_info(where, run_id);
    return true;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return false;
  }
}

}  // namespace

Imported import_runs(Track& track, vault::Vault& vault, const ImportRequest& request, const blob::Source& file,
                     const sql::Act& act) {
  TarReader tar(file);
  const auto read_named = [&](std::string_view name, std::size_t bytes_max) {
    const auto member = tar.next();
    if (!member || member->name != name)
      throw Error(Code::invalid, fmt::format("not an export of runs: '{}' is missing", name));
    return tar.read_all(*member, bytes_max);
  };
  const auto text = read_named(kExportManifestName, kExportManifestBytesMax);
  const auto manifest =
      verify_export(text, read_named(kExportSignatureName, kExportSignatureBytesMax), request.trusted);

  std::map<std::string, ExportExperiment> experiments;
  for (const auto& experiment : manifest.experiments) experiments[experiment.name] = experiment;
  if (!request.experiment.empty()) experiments = {{request.experiment, {request.experiment, {}}}};
  for (const auto& [name, experiment] : experiments) refuse_deleted(track, request.where, name);

  Imported out;
  out.manifest = crypto::sha256(text);
  Members members(tar, manifest);
  Staging staging(track, vault, request.where, members, act);
  put_artifacts(vault, request.where, members, staging.models(), out, act);
  staging.each([&](const ExportedRun& run, std::span<const ExportedBlock> blocks) {
    std::int64_t number = kDefaultExperiment;
    if (!is_there(track, request.where, run.run_id)) {
      const auto& name = request.experiment.empty() ? run.experiment : request.experiment;
      const auto wanted = experiments.find(name);
      number = experiment_for(track, request.where,
                              wanted == experiments.end() ? ExportExperiment{name, {}} : wanted->second, out, act);
    }
    auto act_on_run = act;
    act_on_run.resource = scope_of(request.where, "run", run.run_id);
    const auto merged = track.merge_run(request.where, number, run, blocks, act_on_run);
    out.runs += 1;
    out.made += merged.made;
    out.changed += merged.changed && !merged.made;
    out.points += merged.points;
  });
  return out;
}

}  // namespace falaj::track
