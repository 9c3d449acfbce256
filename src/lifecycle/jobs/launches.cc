// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/launches.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/sys/files.h"
#include "lifecycle/jobs/job_files.h"
#include "lifecycle/jobs/told.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenFile = "token";
constexpr std::int64_t kTokenLifeUs = std::int64_t{7} * 86'400 * kSecondUs, kTokenSlackUs = 3600 * kSecondUs;
constexpr std::size_t kToldPiece = 1 << 20;
constexpr int kSavedFilesMax = 1000;  // looked at for when a checkpoint changed
// What the token of a job is good for, in its project: to log into runs. It is never worth more than its owner.
const std::vector<std::string> kTokenActions = {"experiment.read", "experiment.write", "run.read",
                                                "run.write",       "model.read",       "model.write"};

sql::Act act_of(const Record& record, std::string_view verb) {
  return {"system/jobs", std::string(verb), record.scope().str(), ""};
}

template <class F>
void with_directory(std::string_view doing, F work) {
  try {
    work();
  } catch (const fs::filesystem_error& e) {
    throw Error(Code::unavailable, fmt::format("{}: {}", doing, e.code().message()));
  }
}

execute::Isolation isolation_named(std::string_view name) {
  for (const auto level : {execute::Isolation::restricted, execute::Isolation::contained, execute::Isolation::isolated})
    if (execute::name_of(level) == name) return level;
  return execute::Isolation::none;
}

track::RunStatus run_status(const Record& record) {
  if (record.life.verdict == name_of(Phase::succeeded)) return track::RunStatus::finished;
  return record.life.verdict == name_of(Phase::cancelled) ? track::RunStatus::killed : track::RunStatus::failed;
}

}  // namespace

std::vector<execute::Task> tasks_of(const Record& record) {
  std::vector<execute::Task> out;
  const auto each = record.spec->gpus >= 1 ? static_cast<std::size_t>(record.spec->gpus) : std::size_t{1};
  for (const auto& place : record.life.places) {
    for (std::int64_t i = 0; i < place.tasks; ++i) {
      execute::Task task;
      task.rank = static_cast<int>(out.size());
      task.node = place.node;
      for (std::size_t k = 0; k < each; ++k)
        if (const auto at = static_cast<std::size_t>(i) * each + k; at < place.gpus.size())
          task.gpus.push_back(place.gpus[at]);
      out.push_back(std::move(task));
    }
  }
  return out;
}

const ElsewhereOptions* Launches::elsewhere(const Record& record) const {
  const auto found = options_.elsewhere.find(record.life.executor);
  return found == options_.elsewhere.end() ? nullptr : &found->second;
}

std::string Launches::home(const Record& record) const {
  const auto* other = elsewhere(record);
  return fmt::format("{}/{}", other ? other->directory : options_.directory, record.id.str());
}

// As it is declared now: what was submitted before it was raised starts no weaker either.
execute::Isolation Launches::isolation_of_tenant(const Record& record) const {
  const auto snapshot = parts_.directory.snapshot();
  const auto* tenant = snapshot->find<iam::Tenant>(record.where.tenant.str());
  return tenant ? isolation_named(tenant->isolation_min) : execute::Isolation::none;
}

Launches::Prepared Launches::prepare(const Record& record) {
  const auto& spec = *record.spec;
  const auto at = home(record);
  Prepared out;
  auto& launch = out.launch;
  launch.attempt = record.attempt();
  launch.command = spec.command;
  launch.work_directory = fmt::format("{}/work.{}", at, record.life.epoch);
  launch.checkpoint_directory = at + "/checkpoint";
  with_directory("making the directories of a job", [&] {
    for (const auto* name : {"checkpoint", "outputs", "told"}) fs::create_directories(fs::path(at) / name);
    fs::create_directories(launch.work_directory);
    if (record.life.epoch > 1) fs::remove_all(fmt::format("{}/work.{}", at, record.life.epoch - 1));
  });
  if (spec.checkpoint.store_us > 0 && record.life.epoch > 1) checkpoints_.restore(record, launch.checkpoint_directory);
  launch.mounts.push_back({at + "/outputs", true});
  launch.mounts.push_back({at + "/told", true});
  if (const auto found = options_.built_in.find(spec.command[0]); found != options_.built_in.end()) {
    launch.command[0] = found->second.path;
    for (const auto& path : found->second.shown) launch.mounts.push_back({path, false});
  }
  if (spec.run.make) out.run_id = run_of(record);
  for (const auto& input : spec.inputs) stage(record, input, out.run_id);
  if (!spec.inputs.empty()) launch.mounts.push_back({at + "/inputs", false});
  if (!spec.image.empty()) {
    const auto slash = spec.image.rfind('/');
    if (slash == std::string::npos ||
        std::find(options_.images.begin(), options_.images.end(), spec.image.substr(0, slash)) ==
            options_.images.end() ||
        spec.image.substr(slash + 1).starts_with('.'))
      throw Error(Code::denied, fmt::format("image: '{}' is not in a directory of images of this server", spec.image));
    launch.image = spec.image;
  }
  launch.tasks = tasks_of(record);
  launch.spares = static_cast<int>(std::min<std::int64_t>(spec.spares, std::ssize(launch.tasks) - 1));
  launch.limits = {std::llround(spec.cpus * 1000), spec.memory_bytes, spec.disk_bytes, spec.processes};
  const auto* other = elsewhere(record);
  launch.isolation_min = std::max({other ? other->isolation_min : options_.isolation_min,
                                   isolation_named(spec.isolation), isolation_of_tenant(record)});
  launch.network = spec.network == "host" ? execute::Network::host : execute::Network::none;
  launch.time_limit = sys::Micros(spec.time_limit_us);
  launch.grace = sys::Micros(spec.grace_us);
  launch.queue = spec.queue;
  if (!spec.deadline.empty()) launch.deadline = sys::Micros(parse_time(spec.deadline).value_or(0));
  launch.gpu_type = spec.gpu_type;
  launch.gpus_per_task = static_cast<std::int64_t>(spec.gpus);
  add_environment(record, out, launch);
  return out;
}

track::NewRun Launches::new_run(const Record& record) const {
  track::NewRun run;
  run.id = run_id_of(record.id);
  run.name = record.name;
  run.user = record.owner.substr(record.owner.rfind('/') + 1);
  run.start_ms = record.life.placed_us / 1000;
  run.tags = {{"falaj.job", record.id.str()}};
  if (!record.array.empty()) {
    run.tags.push_back({"falaj.array", record.array});
    run.tags.push_back({"falaj.array_index", std::to_string(record.array_index)});
  }
  return run;
}

std::function<void(sql::Writer&)> Launches::beside_placing(const Record& record) {
  const auto& wanted = record.spec->run;
  if (!wanted.make || !record.life.run_id.empty()) return {};
  try {
    auto run = new_run(record);
    if (!wanted.experiment.empty())
      run.experiment = parts_.track.experiment_by_name(record.where, wanted.experiment).number;
    return parts_.track.run_to_add(record.where, run);
  } catch (const Error&) {
    return {};  // run_of makes it, or says why not
  }
}

std::string Launches::run_of(const Record& record) {
  if (!record.life.run_id.empty()) return record.life.run_id;
  auto& track = parts_.track;
  auto run = new_run(record);
  if (track.has_run(record.where, run.id)) return run.id;
  if (const auto& name = record.spec->run.experiment; !name.empty()) {
    try {
      run.experiment = track.experiment_by_name(record.where, name).number;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      run.experiment = track.create_experiment(record.where, name, {}, act_of(record, "experiment.create"));
    }
  }
  return track.create_run(record.where, run, act_of(record, "run.create")).info.run_id;
}

// A new one for each attempt, unless this attempt was prepared before and has one.
std::string Launches::token_of(const Record& record) {
  auto files = sys::open_files(home(record) + "/secret");
  const auto name = fmt::format("{}.{}", kTokenFile, record.life.epoch);
  if (files->stat(name)) return std::string(as_text(files->read_all(name, 4096)));
  const auto limit = record.spec->time_limit_us;
  iam::NewToken token;
  token.principal = iam::Principal::parse(record.owner);
  token.name = "job " + record.attempt();
  token.restrictions = {{kTokenActions, record.where.scope()}};
  token.ttl_us =
      std::min(limit > 0 ? limit + record.spec->grace_us + kTokenSlackUs : kTokenLifeUs, iam::kTokenLifeMaxUs);
  const auto issued = parts_.database.write(
      act_of(record, "token.create"), [&](sql::Writer& writer) { return parts_.directory.issue_token(writer, token); });
  files->write_all(name, as_bytes(issued.text));
  return issued.text;
}

void Launches::ended(const std::string& executor, const std::string& attempt) {
  const auto name = parse_attempt(attempt);
  if (!name) return;
  const auto other = options_.elsewhere.find(executor);
  const auto at =
      fmt::format("{}/{}/secret", other == options_.elsewhere.end() ? options_.directory : other->second.directory,
                  name->job.str());
  if (!fs::exists(at)) return;
  auto files = sys::open_files(at);
  const auto file = fmt::format("{}.{}", kTokenFile, name->epoch);
  if (!files->stat(file)) return;
  const auto text = files->read_all(file, 4096);
  if (const auto token = iam::parse_credential(iam::CredentialKind::token, as_text(text))) {
    try {
      parts_.database.write({"system/jobs", "token.revoke", "/", ""},
                            [&](sql::Writer& writer) { parts_.directory.revoke_token(writer, token->id); });
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
  }
  files->remove(file);
}

void Launches::revoke_token(const Record& record) {
  const auto at = home(record) + "/secret";
  if (!fs::exists(at)) return;
  auto files = sys::open_files(at);
  for (const auto& info : files->list("")) {
    const auto text = files->read_all(info.name, 4096);
    const auto token = iam::parse_credential(iam::CredentialKind::token, as_text(text));
    if (!token) continue;
    try {
      parts_.database.write(act_of(record, "token.revoke"),
                            [&](sql::Writer& writer) { parts_.directory.revoke_token(writer, token->id); });
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
  }
}

void Launches::stage(const Record& record, const InputSpec& input, const std::string& run_id) {
  const auto into = fmt::format("{}/inputs/{}", home(record), input.name);
  const auto done = into + ".staged";
  if (fs::exists(done)) return;
  with_directory("staging inputs", [&] {
    fs::remove_all(into);
    fs::create_directories(into);
  });
  if (!input.dataset.empty()) {
    if (!options_.stage_dataset) throw Error(Code::invalid, "inputs: this server has no datasets");
    const auto digest = options_.stage_dataset(record.where, input.dataset, into);
    const auto name = input.dataset.substr(0, input.dataset.find('@'));
    if (!run_id.empty())
      parts_.track.log_inputs(record.where, run_id,
                              {{{name, digest, "falaj", input.dataset, "", ""}, {{"mlflow.data.context", input.name}}}},
                              {}, act_of(record, "run.log_inputs"));
  } else if (!input.artifact.empty()) {
    const auto slash = input.artifact.find('/');
    const auto run = input.artifact.substr(0, slash);
    const auto path = slash == std::string::npos ? "" : track::checked_artifact_path(input.artifact.substr(slash + 1));
    parts_.track.run_info(record.where, run);  // of this project
    stage_blobs(record, track::run_artifact(run, path), into);
  } else if (!input.text.empty()) {
    sys::open_files(into)->write_all("text", as_bytes(input.text));
  } else {
    stage_blobs(record, input.blob, into);
  }
  with_directory("staging inputs", [&] { fs::create_directory(done); });
}

// A blob, or all whose names have `name` as their directory. The vault checks every byte against its digest.
void Launches::stage_blobs(const Record& record, const std::string& name, const std::string& into) {
  auto files = sys::open_files(into);
  std::size_t found = 0;
  const auto below = name.ends_with('/') ? name : name + "/";
  each_entry(parts_.vault, record.where, below, [&](const vault::Entry& entry) {
    take_file(parts_.vault, record.where, entry, *files, entry.name.substr(below.size()));
    found += 1;
  });
  if (found > 0) return;
  const auto entry = parts_.vault.info(record.where, name);  // throws not_found
  take_file(parts_.vault, record.where, entry, *files, name.substr(name.rfind('/') + 1));
}

void Launches::add_environment(const Record& record, const Prepared& prepared, execute::Launch& launch) {
  const auto& spec = *record.spec;
  const auto at = home(record);
  auto& env = launch.environment;
  env["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  env["HOME"] = launch.work_directory;
  env["LANG"] = "C.UTF-8";
  for (const auto& [key, value] : spec.environment) env[key] = value;
  for (const auto& [key, name] : spec.secrets) {
    if (!options_.reveal) throw Error(Code::invalid, "secrets: this server has none");
    env[key] = options_.reveal(record.where, name);
  }
  env["FALAJ_JOB_ID"] = record.id.str();
  env["FALAJ_JOB_NAME"] = record.name;
  env["FALAJ_ATTEMPT"] = std::to_string(record.life.epoch);
  env["FALAJ_TENANT"] = record.where.tenant.str();
  env["FALAJ_PROJECT"] = record.where.project.str();
  env["FALAJ_CHECKPOINT_DIR"] = launch.checkpoint_directory;
  env["FALAJ_OUTPUTS"] = at + "/outputs";
  env["FALAJ_METRICS"] = at + "/told/metrics.jsonl";
  env["FALAJ_CPUS"] = fmt::format("{}", spec.cpus);
  env["FALAJ_MEMORY_BYTES"] = std::to_string(spec.memory_bytes);
  if (!spec.inputs.empty()) env["FALAJ_INPUTS"] = at + "/inputs";
  if (!record.array.empty()) {
    env["FALAJ_ARRAY_ID"] = record.array;
    env["FALAJ_ARRAY_INDEX"] = std::to_string(record.array_index);
    env["FALAJ_ARRAY_COUNT"] = std::to_string(spec.array ? spec.array->count : 1);
  }
  if (!prepared.run_id.empty()) env["MLFLOW_RUN_ID"] = env["FALAJ_RUN_ID"] = prepared.run_id;
  // Without the network nobody can be called, so there is no token to lose either.
  if (launch.network != execute::Network::host) return;
  const auto* other = elsewhere(record);
  const auto& reached_by = other ? other->url : options_.url;
  const auto url = reached_by ? reached_by() : "";
  if (url.empty()) return;
  const auto token = token_of(record);
  launch.mounts.push_back({at + "/secret", false});
  env["FALAJ_URL"] = url;
  env["FALAJ_TOKEN_FILE"] = fmt::format("{}/secret/{}.{}", at, kTokenFile, record.life.epoch);
  env["MLFLOW_TRACKING_URI"] =
      fmt::format("{}/mlflow/{}/{}", url, record.where.tenant.str(), record.where.project.str());
  env["MLFLOW_TRACKING_TOKEN"] = token;
}

std::int64_t Launches::follow(const Record& record, std::int64_t offset) {
  if (record.life.run_id.empty()) return offset;
  const auto at = home(record) + "/told";
  if (!fs::exists(at)) return offset;
  auto files = sys::open_files(at);
  if (!files->stat("metrics.jsonl")) return offset;
  const auto file = files->open("metrics.jsonl");
  // One piece after the other, each up to its last whole line: the job may be writing the next one.
  for (Bytes piece(kToldPiece);;) {
    const auto read = file->read(static_cast<std::uint64_t>(offset), piece);
    const auto text = as_text(BytesView(piece).first(read));
    const auto end = text.rfind('\n');
    if (end == std::string_view::npos) {
      if (read == piece.size()) throw Error(Code::invalid, "a line of $FALAJ_METRICS is longer than 1 MiB");
      return offset;
    }
    for (const auto& batch : parse_told(text.substr(0, end), parts_.clock.wall().count() / 1000)) {
      try {
        parts_.track.log(record.where, record.life.run_id, batch, act_of(record, "run.log"));
      } catch (const Error& e) {
        if (e.retryable()) throw;
        log::warn("job_told_refused", {{"job", record.id.str()}, {"why", e.what()}});  // another value of a param, ...
      }
    }
    offset += static_cast<std::int64_t>(end + 1);
  }
}

std::int64_t Launches::saved_us(const Record& record) const {
  std::int64_t newest = 0;
  std::error_code gone;  // files come and go meanwhile
  fs::recursive_directory_iterator at(home(record) + "/checkpoint", gone);
  for (int looks = 0; !gone && at != fs::recursive_directory_iterator() && looks < kSavedFilesMax; ++looks) {
    std::error_code error;
    const auto time = at->is_symlink(error) ? fs::file_time_type::min() : at->last_write_time(error);
    if (!error && time != fs::file_time_type::min()) {
      const auto wall = fs::file_time_type::clock::to_sys(time).time_since_epoch();
      newest = std::max(newest, std::chrono::duration_cast<sys::Micros>(wall).count());
    }
    at.increment(gone);
  }
  return newest;
}

void Launches::keep(const Record& record) {
  const auto& life = record.life;
  if (life.run_id.empty()) return tidy(record);
  const auto outputs = home(record) + "/outputs";
  if (fs::exists(outputs)) {
    auto files = sys::open_files(outputs);
    const auto paths = files_below(*files);
    const auto name_of = [&](const std::string& path) {
      return track::run_artifact(life.run_id, track::checked_artifact_path(path));
    };
    if (!paths.empty()) put_files(parts_.vault, record.where, *files, paths, name_of, act_of(record, "artifact.put"));
  }
  follow(record, 0);
  std::optional<Error> problem;
  const auto& model = record.spec->run.model;
  if (!model.empty() && run_status(record) == track::RunStatus::finished) {
    // Nothing is a model of nothing; the job's history says so.
    if (!fs::exists(outputs + "/model") || fs::is_empty(outputs + "/model"))
      problem = Error(Code::invalid, "run.model: it left nothing in $FALAJ_OUTPUTS/model");
    else
      options_.register_model(record.where, life.run_id, model, record.spec->run.alias);
  }
  track::Batch batch;
  if (life.end) {
    batch.tags = {{"falaj.exit", life.end->signal != 0 ? fmt::format("signal {}", life.end->signal)
                                                       : fmt::format("exit {}", life.end->exit_code)},
                  {"falaj.reason", life.end->reason},
                  {"falaj.cpu_seconds", fmt::format("{:.2f}", static_cast<double>(life.end->cpu_us) / 1e6)},
                  {"falaj.memory_peak_bytes", std::to_string(life.end->memory_peak_bytes)}};
    parts_.track.log(record.where, life.run_id, batch, act_of(record, "run.log"));
  }
  track::RunChange change;
  change.status = run_status(record);
  change.end_ms = parts_.clock.wall().count() / 1000;
  parts_.track.update_run(record.where, life.run_id, change, act_of(record, "run.update"));
  tidy(record);
  if (problem) throw Error(*problem);
}

std::string Launches::store_checkpoint(const Record& record, const std::string& known) {
  return checkpoints_.store(record, home(record) + "/checkpoint", known);
}

void Launches::tidy(const Record& record) {
  const auto at = home(record);
  with_directory("removing the directories of a job", [&] {
    if (!fs::exists(at)) return;
    revoke_token(record);
    const bool succeeded = record.life.phase == Phase::succeeded || record.life.verdict == name_of(Phase::succeeded);
    if (succeeded) {
      fs::remove_all(at);
      if (record.spec->checkpoint.store_us > 0) checkpoints_.drop(record);
      return;
    }
    if (record.spec->checkpoint.store_us > 0) checkpoints_.store(record, at + "/checkpoint", "");
    for (const auto& entry : fs::directory_iterator(at))
      if (entry.path().filename() != "checkpoint") fs::remove_all(entry.path());
    if (fs::is_empty(fs::path(at) / "checkpoint")) fs::remove_all(at);
  });
}

std::size_t Launches::sweep(const std::function<bool(JobId)>& is_live, std::int64_t unchanged_since_us) {
  std::size_t gone = sweep(options_.directory, is_live, unchanged_since_us);
  for (const auto& entry : options_.elsewhere) gone += sweep(entry.second.directory, is_live, unchanged_since_us);
  for (const auto& entry : parts_.directory.snapshot()->all<iam::Project>())
    gone += checkpoints_.sweep({{entry.second.tenant}, {entry.second.name}}, is_live, unchanged_since_us);
  return gone;
}

std::size_t Launches::sweep(const std::string& directory, const std::function<bool(JobId)>& is_live,
                            std::int64_t unchanged_since_us) {
  std::size_t gone = 0;
  if (!fs::exists(directory)) return gone;
  auto files = sys::open_files(directory);
  for (const auto& info : files->list("")) {
    if (!info.directory || info.modified_us > unchanged_since_us) continue;
    try {
      if (is_live(JobId::parse(info.name))) continue;
    } catch (const Error&) {
      continue;  // not a job's
    }
    with_directory("removing the directories of a job", [&] { fs::remove_all(directory + "/" + info.name); });
    gone += 1;
  }
  return gone;
}

}  // namespace falaj::jobs
