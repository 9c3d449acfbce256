// SPDX-License-Identifier: Apache-2.0
// jobs: submit, look, follow, stop

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/features.h"
#include "api/page.h"
#include "api/project.h"
#include "api/trainings.h"
#include "api/turn.h"
#include "governance/resource/document.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kSubmitBody{16 << 20};
constexpr int kFollowersMax = 16;  // each holds a worker while it waits
constexpr std::int64_t kLogBytes = 256 * 1024, kLogBytesMax = 4 << 20, kFollowMaxUs = 20'000'000;

struct JobSource {
  std::string file, text;
};
struct TrainingIn {
  std::string name;
  std::map<std::string, std::string> labels;
  recipe::Training spec;
};
struct SubmitIn {
  std::vector<JobSource> sources;
  std::vector<jobs::NewJob> jobs;
  bool profile = false;
};
struct SubmittedJob {
  std::string id, name;
  std::optional<std::string> array;
  std::int64_t count = 1;
};
struct SubmitOut {
  std::vector<SubmittedJob> jobs;
};
struct JobOut {
  std::string id, name, phase, why, queue, owner, executor, isolation, submitted;
  std::optional<std::string> array, started, ended, run_id, reason, not_before, idle_since;
  std::optional<std::int64_t> array_index, exit_code, signal, cpu_us, memory_peak_bytes;
  std::int64_t attempts = 0, failures = 0, preemptions = 0, tasks = 1;
  std::vector<std::string> nodes;
  std::map<std::string, std::string> labels;
  std::optional<json::value> spec;
};
struct ListJobsIn {
  std::string phase, queue, owner, name, array, cursor;
  bool live = false;
  std::int64_t limit = kPageItems;
};
struct LogsIn {
  std::int64_t rank = 0, offset = 0, attempt = 0, bytes = kLogBytes, wait_us = 0;
};
struct LogsOut {
  std::string text;
  std::int64_t next_offset = 0, first_offset = 0;
  bool ended = false;
};
struct ExplainOut {
  std::string id, phase, reason, text;
  std::optional<std::string> behind, promised, start_p50, start_p90;
};
struct JobEvent {
  std::int64_t number = 0, attempt = 0;
  std::string at, phase, why;
};
struct JobEvents {
  std::vector<JobEvent> items;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<JobSource> {
  static constexpr std::string_view name = "JobSource";
  static Fields fields() {
    return {field("file", &JobSource::file, "Its name, for messages.").required().length(1, 1024),
            field("text", &JobSource::text, "YAML: documents of kind Job.").required().length(0, 1 << 20)};
  }
};
template <>
struct Shape<TrainingIn> {
  static constexpr std::string_view name = "Training";
  static Fields fields() {
    return {field("name", &TrainingIn::name, "Of its job, and of its model.").required().text({is_name, kNameRule}),
            field("labels", &TrainingIn::labels, "To select by.").length(0, 64),
            field("spec", &TrainingIn::spec, "What is learned from what.").required()};
  }
};
template <>
struct Shape<SubmitIn> {
  static constexpr std::string_view name = "SubmitJobs";
  static Fields fields() {
    return {field("sources", &SubmitIn::sources, "Files of jobs.").length(0, 1000),
            field("jobs", &SubmitIn::jobs, "Jobs, besides those of the files. All of them or none.").length(0, 10'000),
            field("profile", &SubmitIn::profile, "Trainings of the files leave a trace of where their time went.")};
  }
};
template <>
struct Shape<SubmittedJob> {
  static constexpr std::string_view name = "SubmittedJob";
  static Fields fields() {
    return {field("id", &SubmittedJob::id, "Of the job; of the first member of an array."),
            field("name", &SubmittedJob::name, "Its name."),
            field("array", &SubmittedJob::array, "Of all of its members."),
            field("count", &SubmittedJob::count, "How many jobs it is.")};
  }
};
template <>
struct Shape<SubmitOut> {
  static constexpr std::string_view name = "SubmittedJobs";
  static Fields fields() { return {field("jobs", &SubmitOut::jobs, "In the order given.")}; }
};
template <>
struct Shape<JobOut> {
  using T = JobOut;
  static constexpr std::string_view name = "Job";
  static Fields fields() {
    return {field("id", &T::id, "Its id."),
            field("name", &T::name, "Its name."),
            field("phase", &T::phase,
                  "pending, admitted, starting, running, checkpointing, finishing, succeeded, failed or cancelled."),
            field("why", &T::why, "The newest change, in words."),
            field("queue", &T::queue, "Where it waits."),
            field("owner", &T::owner, "Who submitted it."),
            field("executor", &T::executor, "Where it runs."),
            field("isolation", &T::isolation, "How far it is kept apart there."),
            field("submitted", &T::submitted, "When."),
            field("started", &T::started, "When its newest attempt began."),
            field("ended", &T::ended, "When it ended."),
            field("not_before", &T::not_before, "It does not start before."),
            field("idle_since", &T::idle_since, "It holds processors and hardly uses them since then."),
            field("array", &T::array, "The array it is a member of."),
            field("array_index", &T::array_index, "Which member."),
            field("attempts", &T::attempts, "How often it was started."),
            field("failures", &T::failures, "How often it failed and was tried again."),
            field("preemptions", &T::preemptions, "How often it was stopped for another."),
            field("tasks", &T::tasks, "Processes it has, or will have."),
            field("nodes", &T::nodes, "Where they are."),
            field("reason", &T::reason, "How its newest attempt ended."),
            field("exit_code", &T::exit_code, "With what."),
            field("signal", &T::signal, "By which signal."),
            field("cpu_us", &T::cpu_us, "Processor time of that attempt."),
            field("memory_peak_bytes", &T::memory_peak_bytes, "Most memory of that attempt."),
            field("run_id", &T::run_id, "Its tracked run."),
            field("labels", &T::labels, "To select by."),
            field("spec", &T::spec, "What was asked for; not in lists.")};
  }
};
template <>
struct Shape<ListJobsIn> {
  using T = ListJobsIn;
  static constexpr std::string_view name = "ListJobs";
  static Fields fields() {
    return {field("phase", &T::phase, "Only those in it.").length(0, 20),
            field("queue", &T::queue, "").length(0, 127),
            field("owner", &T::owner, "").length(0, 255),
            field("name", &T::name, "").length(0, 63),
            field("array", &T::array, "Only its members.").length(0, 26),
            field("live", &T::live, "Only those that have not ended."),
            field("cursor", &T::cursor, "").length(0, 26),
            field("limit", &T::limit, "").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<LogsIn> {
  using T = LogsIn;
  static constexpr std::string_view name = "JobLogQuestion";
  static Fields fields() {
    return {field("rank", &T::rank, "Of which task.").range(0, jobs::kTasksMax),
            field("offset", &T::offset, "From which byte on.").range(0, std::int64_t{1} << 60),
            field("attempt", &T::attempt, "Of which attempt; 0 = the newest.").range(0, 1'000'000),
            field("bytes", &T::bytes, "At most so many.").range(1, kLogBytesMax),
            field("wait", &T::wait_us, "How long to wait for more.").duration().range(0, kFollowMaxUs)};
  }
};
template <>
struct Shape<LogsOut> {
  using T = LogsOut;
  static constexpr std::string_view name = "JobLog";
  static Fields fields() {
    return {field("text", &T::text, "What the task wrote; bytes that are not text are replaced."),
            field("next_offset", &T::next_offset, "Where to go on."),
            field("first_offset", &T::first_offset, "What came before was dropped."),
            field("ended", &T::ended, "Nothing will follow.")};
  }
};
template <>
struct Shape<ExplainOut> {
  using T = ExplainOut;
  static constexpr std::string_view name = "JobExplanation";
  static Fields fields() {
    return {field("id", &T::id, "The job."),
            field("phase", &T::phase, "Where it is in its life."),
            field("reason", &T::reason, "The one thing it waits for; empty when it does not wait."),
            field("text", &T::text, "In words."),
            field("behind", &T::behind, "The job that what is free is promised to."),
            field("promised", &T::promised, "It starts by then."),
            field("start_p50", &T::start_p50, "As likely before as after."),
            field("start_p90", &T::start_p90, "Very likely before.")};
  }
};
template <>
struct Shape<JobEvent> {
  using T = JobEvent;
  static constexpr std::string_view name = "JobEvent";
  static Fields fields() {
    return {field("number", &T::number, "Counts up."), field("at", &T::at, "When."),
            field("phase", &T::phase, "What it became."), field("attempt", &T::attempt, "Its newest attempt then."),
            field("why", &T::why, "In words.")};
  }
};
template <>
struct Shape<JobEvents> {
  static constexpr std::string_view name = "JobEvents";
  static Fields fields() { return {field("items", &JobEvents::items, "Oldest first.")}; }
};
}  // namespace falaj

namespace falaj::api {
namespace {

jobs::JobId job_id(const Call& call) {
  try {
    return jobs::JobId::parse(call.parameter("id"));
  } catch (const Error&) {
    throw Error(Code::not_found, fmt::format("no job '{}'", call.parameter("id").substr(0, 64)));
  }
}

JobOut out_of(const jobs::Record& record) {
  const auto& life = record.life;
  JobOut out;
  out.id = record.id.str();
  out.name = record.name;
  out.phase = name_of(life.phase);
  out.why = life.why;
  out.queue = record.spec->queue;
  out.owner = record.owner;
  out.executor = life.executor;
  out.isolation = life.isolation;
  out.submitted = format_time(record.submitted_us);
  if (life.started_us > 0) out.started = format_time(life.started_us);
  if (life.phase == jobs::Phase::running && life.idle_since_us > 0) out.idle_since = format_time(life.idle_since_us);
  if (life.ended_us > 0) out.ended = format_time(life.ended_us);
  if (life.not_before_us > 0) out.not_before = format_time(life.not_before_us);
  if (!record.array.empty()) out.array = record.array, out.array_index = record.array_index;
  out.attempts = life.epoch;
  out.failures = life.failures;
  out.preemptions = life.preemptions;
  out.tasks = life.places.empty() ? record.spec->tasks : 0;
  for (const auto& place : life.places) {
    out.nodes.push_back(place.node);
    out.tasks += place.tasks;
  }
  if (life.end) {
    out.reason = life.end->reason;
    out.exit_code = life.end->exit_code;
    if (life.end->signal != 0) out.signal = life.end->signal;
    out.cpu_us = life.end->cpu_us;
    out.memory_peak_bytes = life.end->memory_peak_bytes;
  }
  if (!life.run_id.empty()) out.run_id = life.run_id;
  out.labels = record.labels;
  return out;
}

// A document of kind Job or Training; its faults are added with their place.
std::optional<jobs::NewJob> read_job(Platform& platform, const resource::Document& document, const vault::Where& where,
                                     bool profile, Faults& faults) {
  Faults own;
  jobs::NewJob job;
  const auto* object = document.yaml.value.if_object();
  const auto* kind = object ? object->if_contains("kind") : nullptr;
  const bool training = kind && kind->is_string() && kind->get_string() == "Training";
  if (!training && (!kind || !kind->is_string() || kind->get_string() != "Job")) {
    faults.push_back({document.where("kind"), "must be Job or Training; other kinds are declared with falaj apply"});
    return std::nullopt;
  }
  json::object given;
  for (const auto& member : *object) {
    const std::string_view key = member.key();
    if (key == "spec") given["spec"] = member.value();
    if (key == "metadata" && member.value().is_object()) {
      for (const auto& meta : member.value().get_object()) {
        const std::string_view field = meta.key();
        const auto names = [&](const std::string& wanted) {
          if (!meta.value().is_string() || std::string_view(meta.value().get_string()) != wanted)
            own.push_back({fmt::format("metadata.{}", field), fmt::format("is submitted to {}", wanted)});
        };
        if (field == "name" || field == "labels")
          given[field] = meta.value();
        else if (field == "tenant")
          names(where.tenant.str());
        else if (field == "project")
          names(where.project.str());
        else if (field != "description" && field != "annotations")
          own.push_back({fmt::format("metadata.{}", field), "unknown field"});
      }
    }
    if (key != "spec" && key != "metadata" && key != "kind" && key != "apiVersion")
      own.push_back({std::string(key), "unknown field"});
  }
  if (training) {
    TrainingIn in;
    decode_into(in, given, own);
    if (own.empty()) check(in.spec, own);
    in.spec.profile = in.spec.profile || profile;
    try {
      if (own.empty()) job = job_of_training(platform.models, where, std::move(in.name), std::move(in.labels), in.spec);
    } catch (const Error& e) {
      if (e.retryable()) throw;
      own.push_back({"spec.compare", e.what()});
    }
  } else {
    decode_into(job, given, own);
  }
  for (auto& fault : own) {
    if (fault.where == "name" || fault.where.starts_with("labels")) fault.where = "metadata." + fault.where;
    faults.push_back({document.where(fault.where), std::move(fault.what)});
  }
  return own.empty() ? std::optional(std::move(job)) : std::nullopt;
}

// The rows of a spine with the features of a service, as a dataset, which the input then is.
void make_rows(Platform& platform, Call& call, const vault::Where& where, const std::string& job,
               jobs::InputSpec& input) {
  const auto made = make_train_set(platform, call, where,
                                   {input.service, data::parse_version_name(input.spine), "", job + "-" + input.name});
  input.dataset = fmt::format("{}@{}", made.dataset, made.number);
  input.service.clear();
  input.spine.clear();
}

// Whoever runs something with an input must be allowed to read it, and the machine's network is a right of its own. The
// newest version of a dataset is the one that is the newest now, whenever the job runs.
void settle_inputs(Platform& platform, Call& call, const vault::Where& where, std::vector<jobs::NewJob>& all) {
  for (auto& job : all) {
    if (job.spec.network == "host") call.require(jobs::kUseNetwork, where.scope());
    for (const auto& entry : job.spec.secrets)
      call.require("secret.read", iam::Scope::of(where.tenant.str(), where.project.str(), "secret", entry.second));
    if (!job.spec.run.model.empty()) call.require("model.write", where.scope());
    for (auto& input : job.spec.inputs) {
      if (!input.dataset.empty()) {
        const auto named = data::parse_version_name(input.dataset);
        call.require("dataset.read", iam::Scope::of(where.tenant.str(), where.project.str(), "dataset", named.name));
        const auto version = platform.datasets.version(where, named.name, named.number);
        input.dataset = fmt::format("{}@{}", named.name, version.number);
      }
      if (!input.service.empty()) make_rows(platform, call, where, job.name, input);
      if (!input.artifact.empty()) call.require("run.read", where.scope());
      if (!input.blob.empty()) call.require("blob.read", where.scope());
    }
  }
}

SubmitOut submit(Platform& platform, Call& call, const SubmitIn& in) {
  const auto where = project_of(call);
  std::vector<jobs::NewJob> all = in.jobs;
  std::vector<resource::Document> documents;
  Faults faults;
  for (const auto& source : in.sources)
    for (auto& document : resource::read_documents(source.file, source.text)) {
      if (auto job = read_job(platform, document, where, in.profile, faults)) all.push_back(std::move(*job));
      documents.push_back(std::move(document));
    }
  refuse_if_any("jobs", std::move(faults));
  if (all.empty()) throw Error(Code::invalid, "jobs: there is none in what was given");
  settle_inputs(platform, call, where, all);
  const auto given = in.jobs.size();
  const auto records = platform.jobs.prepare(
      where, call.caller().principal.str(), std::move(all), [&](std::size_t job, const std::string& path) {
        return job < given ? fmt::format("jobs[{}].{}", job, path) : documents[job - given].where(path);
      });
  const auto what = records.size() == 1 ? records[0].scope().str() : where.scope().str();
  return call.write(what, [&](sql::Writer& writer) {
    platform.jobs.insert(writer, records);
    SubmitOut out;
    for (const auto& record : records) {
      if (record.array_index > 0) {
        out.jobs.back().count += 1;
        continue;
      }
      out.jobs.push_back({record.id.str(), record.name, std::nullopt, 1});
      if (!record.array.empty()) out.jobs.back().array = record.array;
    }
    return out;
  });
}

// One's own jobs need no more than the right to submit; another's need job.cancel.
jobs::Record job_to_change(Platform& platform, Call& call, const vault::Where& where) {
  const auto scope = where.scope();
  const bool any = call.allows("job.cancel", scope);
  if (!any) call.require("job.create", scope);
  auto record = platform.jobs.job(where, job_id(call));
  if (!any && record.owner != call.caller().principal.str()) call.require("job.cancel", record.scope());
  return record;
}

JobOut wish(Platform& platform, Call& call, const std::string& what) {
  const auto where = project_of(call);
  const auto record = job_to_change(platform, call, where);
  call.write(record.scope().str(), [&](sql::Writer& writer) {
    platform.jobs.wish(writer, where, {record.id, what, call.actor()});
  });
  return out_of(platform.jobs.job(where, record.id));
}

Page<JobOut> list_jobs(Platform& platform, Call& call, const ListJobsIn& in) {
  if (!in.phase.empty() && !jobs::parse_phase(in.phase))
    throw Error(Code::invalid, fmt::format("phase: no such phase: '{}'", in.phase));
  const auto where = project_of(call);
  const auto limit = static_cast<std::size_t>(in.limit);
  const auto found =
      platform.jobs.list(where, {in.phase, in.queue, in.owner, in.name, in.array, in.live, in.cursor, limit + 1});
  Page<JobOut> out;
  for (std::size_t i = 0; i < std::min(found.size(), limit); ++i) out.items.push_back(out_of(found[i]));
  if (found.size() > limit) out.next = out.items.back().id;
  return out;
}

// JSON holds text only; a character that a page cuts in two is left for the next.
void put_text(LogsOut& out, std::string text, bool all) {
  std::size_t cut = text.size();
  if (!all && !is_utf8(text))
    for (std::size_t back = 1; back <= 3 && back < text.size(); ++back)
      if (is_utf8(std::string_view(text).substr(0, text.size() - back))) {
        cut = text.size() - back;
        break;
      }
  out.next_offset -= static_cast<std::int64_t>(text.size() - cut);
  text.resize(cut);
  for (std::size_t at = 0; !is_utf8(text) && at < text.size(); ++at)
    if (static_cast<unsigned char>(text[at]) >= 0x80) text[at] = '?';
  std::replace(text.begin(), text.end(), '\0', '?');
  out.text = std::move(text);
}

LogsOut logs(Platform& platform, Call& call, const LogsIn& in, Turns& followers) {
  std::optional<Turn> turn;
  if (in.wait_us > 0) turn.emplace(followers);
  auto page = platform.jobs.logs(project_of(call), job_id(call), in.attempt, static_cast<int>(in.rank), in.offset,
                                 in.bytes, sys::Micros(in.wait_us));
  LogsOut out{"", page.next_offset, page.first_offset, page.ended};
  put_text(out, std::move(page.text), page.ended);
  return out;
}

ExplainOut explain(Platform& platform, Call& call) {
  const auto record = platform.jobs.job(project_of(call), job_id(call));
  const auto why = platform.jobs.explain(record);
  ExplainOut out{record.id.str(), std::string(name_of(record.life.phase)), why.reason, why.text, {}, {}, {}, {}};
  if (!why.behind.empty()) out.behind = why.behind;
  if (why.promised_us) out.promised = format_time(*why.promised_us);
  if (why.start_p50_us) out.start_p50 = format_time(*why.start_p50_us);
  if (why.start_p90_us) out.start_p90 = format_time(*why.start_p90_us);
  return out;
}

JobEvents events(Platform& platform, Call& call) {
  JobEvents out;
  const auto record = platform.jobs.job(project_of(call), job_id(call));
  for (const auto& t : platform.jobs.history(record.id))
    out.items.push_back({t.number, t.epoch, format_time(t.at_us), std::string(name_of(t.phase)), t.why});
  return out;
}

}  // namespace

void add_job_routes(Routes& routes, Platform& platform) {
  const auto reads = [](std::string_view path, std::string_view action, std::string_view summary) {
    return Declaration{Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
                       Place::worker, summary};
  };
  const auto changes = [](std::string_view path, std::string_view verb, std::string_view summary) {
    return Declaration{Method::post,  path,   Permission::signed_in("{scope}"), kSmallBody, Audit::verb(verb),
                       Place::worker, summary};
  };
  routes.add<SubmitIn, SubmitOut>({Method::post, "/v1/jobs", Permission::of("job.create", "{scope}"), kSubmitBody,
                                   Audit::verb("job.create"), Place::worker, "Submit jobs, all of them or none."},
                                  [&platform](Call& call, const SubmitIn& in) { return submit(platform, call, in); });
  routes.add<ListJobsIn, Page<JobOut>>(
      reads("/v1/jobs", "job.list", "Jobs of a project, newest first."),
      [&platform](Call& call, const ListJobsIn& in) { return list_jobs(platform, call, in); });
  routes.add<Nothing, JobOut>(reads("/v1/jobs/{id}", "job.read", "A job."), [&platform](Call& call, const Nothing&) {
    const auto record = platform.jobs.job(project_of(call), job_id(call));
    auto out = out_of(record);
    out.spec = encode(*record.spec);
    return out;
  });
  const auto followers = std::make_shared<Turns>(kFollowersMax, "followers of logs");
  routes.add<LogsIn, LogsOut>(
      reads("/v1/jobs/{id}/logs", "job.read", "What a task of a job wrote."),
      [&platform, followers](Call& call, const LogsIn& in) { return logs(platform, call, in, *followers); });
  routes.add<Nothing, ExplainOut>(reads("/v1/jobs/{id}/explain", "job.read", "Why a job waits, and until when."),
                                  [&platform](Call& call, const Nothing&) { return explain(platform, call); });
  routes.add<Nothing, JobEvents>(reads("/v1/jobs/{id}/events", "job.read", "What a job was, one after the other."),
                                 [&platform](Call& call, const Nothing&) { return events(platform, call); });
  routes.add<Nothing, JobOut>(changes("/v1/jobs/{id}/cancel", "job.cancel", "Stop a job for good."),
                              [&platform](Call& call, const Nothing&) { return wish(platform, call, "cancel"); });
  routes.add<Nothing, JobOut>(
      changes("/v1/jobs/{id}/requeue", "job.requeue", "Stop a job and start it again, or start again one that ended."),
      [&platform](Call& call, const Nothing&) { return wish(platform, call, "requeue"); });
}

}  // namespace falaj::api
