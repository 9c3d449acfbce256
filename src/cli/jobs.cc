// SPDX-License-Identifier: Apache-2.0
// submit, job

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/jobs.h"
#include "cli/log_lines.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

constexpr const char *kFollowWait = "10s", *kLiveWait = "1s";

struct SubmitOptions {
  std::vector<std::string> files, environment, labels, after_ok, after_any, inputs, secrets;
  std::string name, queue, priority, memory, disk, gpu_type, limit, expected, deadline, grace, store_checkpoint, image,
      network, executor, experiment, isolation;
  double cpus = 1, gpus = 0;
  std::int64_t tasks = 1, tasks_min = 0, spares = 0, array = 0, parallel = 0, retries = 0;
  bool preemptible = false, no_run = false, wait = false, profile = false;
};

std::string job_path(const std::string& id, std::string_view more = "") {
  return fmt::format("/v1/jobs/{}{}", client::path_element(id), more);
}

client::Query of_project(Session& session) { return {{"scope", session.project_scope()}}; }

json::object pairs_of(const std::vector<std::string>& given, std::string_view option) {
  json::object out;
  for (const auto& text : given) {
    const auto equals = text.find('=');
    if (equals == std::string::npos)
      throw Error(Code::invalid, fmt::format("{}: '{}' must be KEY=VALUE", option, text));
    out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

// "train=dataset:flights@3", "model=artifact:RUN/path", "data=blob:NAME"
json::array job_inputs(const std::vector<std::string>& given) {
  json::array out;
  for (const auto& text : given) {
    const auto equals = text.find('='), colon = text.find(':', equals);
    if (equals == std::string::npos || colon == std::string::npos)
      throw Error(Code::invalid, fmt::format("--input: '{}' must be NAME=dataset:..., artifact:... or blob:...", text));
    out.push_back(json::object{{"name", text.substr(0, equals)},
                               {text.substr(equals + 1, colon - equals - 1), text.substr(colon + 1)}});
  }
  return out;
}

// The last part of the program's path, as far as it can be a name.
std::string name_of_command(const std::string& program) {
  std::string out;
  for (const char c : lower(program.substr(program.rfind('/') + 1)))
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (!out.empty() && (c == '-' || c == '_' || c == '.')))
      out += c;
  out = out.substr(0, 63);
  while (!out.empty() && !is_name(out)) out.pop_back();
  return out.empty() ? "job" : out;
}

json::object job_of(const SubmitOptions& o, const std::vector<std::string>& command) {
  json::object spec{{"command", json::value_from(command)}, {"cpus", o.cpus}, {"tasks", o.tasks}};
  const auto text = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) spec[key] = value;
  };
  text("memory", o.memory);
  text("disk", o.disk);
  text("gpuType", o.gpu_type);
  text("queue", o.queue);
  text("priorityClass", o.priority);
  text("timeLimit", o.limit);
  text("expected", o.expected);
  text("deadline", o.deadline);
  text("grace", o.grace);
  if (!o.store_checkpoint.empty()) spec["checkpoint"] = json::object{{"store", o.store_checkpoint}};
  text("image", o.image);
  text("network", o.network);
  text("executor", o.executor);
  text("isolation", o.isolation);
  if (o.gpus > 0) spec["gpus"] = o.gpus;
  if (o.tasks_min > 0) spec["tasksMin"] = o.tasks_min;
  if (o.spares > 0) spec["spares"] = o.spares;
  if (o.array > 0) spec["array"] = json::object{{"count", o.array}, {"parallel", o.parallel}};
  if (o.retries > 0) spec["retries"] = json::object{{"max", o.retries}};
  if (o.preemptible) spec["preemptible"] = true;
  if (!o.environment.empty()) spec["environment"] = pairs_of(o.environment, "--env");
  if (!o.secrets.empty()) spec["secrets"] = pairs_of(o.secrets, "--secret");
  if (!o.inputs.empty()) spec["inputs"] = job_inputs(o.inputs);
  if (!o.after_ok.empty() || !o.after_any.empty())
    spec["after"] = json::object{{"ok", json::value_from(o.after_ok)}, {"any", json::value_from(o.after_any)}};
  if (o.no_run || !o.experiment.empty()) spec["run"] = json::object{{"make", !o.no_run}, {"experiment", o.experiment}};
  json::object job{{"name", o.name.empty() ? name_of_command(command.at(0)) : o.name}, {"spec", std::move(spec)}};
  if (!o.labels.empty()) job["labels"] = pairs_of(o.labels, "--label");
  return job;
}

std::string text_of_jobs(const std::string& file) {
  std::ostringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", file));
    text << in.rdbuf();
  }
  return text.str();
}

// On a terminal, below what a job writes: where it is in its life, redrawn while it changes. Nothing elsewhere.
class LiveLine {
 public:
  LiveLine(Session& session, bool wanted)
      : session_(session),
        shown_(wanted && !session.quiet && isatty(STDERR_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {}
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool shown() const { return shown_; }
  void show(const json::value& job) {
    if (!shown_) return;
    const auto text = line_of(job);
    winsize size{};
    const std::size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
    fmt::print(stderr, "\r\033[2K\033[2m{}\033[0m", harmless(text).substr(0, width));
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\033[2K");
    std::fflush(stderr);
    drawn_ = false;
  }

 private:
  std::string line_of(const json::value& job) {
    const std::string_view phase = job.at("phase").as_string();
    const auto head = fmt::format("{} {}", std::string_view(job.at("name").as_string()), phase);
    if (phase == "pending" || phase == "admitted") {
      const auto why =
          session_.api().get(job_path(std::string(job.at("id").as_string()), "/explain"), of_project(session_));
      const auto* probably = why.as_object().if_contains("start_p50");
      return fmt::format("{}: {}{}", head, std::string_view(why.at("text").as_string()),
                         probably ? fmt::format("; probably until {}", std::string_view(probably->as_string())) : "");
    }
    const auto& nodes = job.at("nodes").as_array();
    std::string where;
    for (std::size_t i = 0; i < nodes.size() && i < 3; ++i)
      where += (where.empty() ? "" : ", ") + std::string(nodes[i].as_string());
    if (nodes.size() > 3) where += fmt::format(" and {} more", nodes.size() - 3);
    const auto* started = job.as_object().if_contains("started");
    const auto since = started ? parse_time(started->as_string()) : std::nullopt;
    return fmt::format(
        "{}: {} task{} on {}{}{}", head, job.at("tasks").as_int64(), job.at("tasks").as_int64() == 1 ? "" : "s", where,
        since ? " for " + format_duration_us(session_.clock().wall().count() - *since) : "",
        job.at("attempts").as_int64() > 1 ? fmt::format(", attempt {}", job.at("attempts").as_int64()) : "");
  }

  Session& session_;
  const bool shown_;
  bool drawn_ = false;
};

bool is_over(std::string_view phase) { return phase == "succeeded" || phase == "failed" || phase == "cancelled"; }

struct LogsOptions {
  std::int64_t rank = 0;
  std::int64_t attempt = 0;  // 0 = from the newest on
  bool follows = false, all = false;
  std::size_t tail = 0;  // 0 = from the beginning
  std::string search;
};

// Prints what a task writes until it has ended, over all attempts of the job. Returns the job as it is then.
json::value follow(Session& session, const std::string& id, const LogsOptions& options) {
  const bool goes_on = options.follows;
  std::int64_t offset = 0, attempt = options.attempt;
  LiveLine line(session, goes_on);
  LogLines lines(options.search, options.tail);
  const auto ended = [&](const json::value& job) {
    session.output().raw(lines.end());
    return job;
  };
  for (;;) {
    const auto job = session.api().get(job_path(id), of_project(session));
    const auto newest = job.at("attempts").as_int64();
    const bool over = is_over(job.at("phase").as_string());
    if (attempt == 0 && newest > 0) attempt = newest;
    auto query = of_project(session);
    query.emplace_back("rank", std::to_string(options.rank));
    query.emplace_back("offset", std::to_string(offset));
    if (attempt > 0) query.emplace_back("attempt", std::to_string(attempt));
    if (goes_on) query.emplace_back("wait", line.shown() ? kLiveWait : kFollowWait);
    if (!over) line.show(job);
    const auto page = session.api().get(job_path(id, "/logs"), query);
    if (!page.at("text").as_string().empty()) line.clear();
    session.output().raw(lines.take(page.at("text").as_string()));
    std::fflush(stdout);
    const auto next = page.at("next_offset").as_int64();
    const bool more = next > offset;
    offset = next;
    if (more) continue;
    session.output().raw(lines.caught_up());
    if (!goes_on) return ended(job);
    if (attempt > 0 && attempt < newest) {  // another began meanwhile
      if (options.attempt > 0) return ended(job);
      attempt += 1;
      offset = 0;
      continue;
    }
    if (over) return ended(job);
  }
}

// What all tasks of a gang wrote, each line with its rank before it, as far as they have come.
void follow_all(Session& session, const std::string& id, bool goes_on) {
  std::map<std::int64_t, std::int64_t> offsets;
  std::map<std::int64_t, std::string> open;  // lines that have not ended
  std::int64_t attempt = 0, tasks = 1;
  LiveLine line(session, goes_on);
  for (;;) {
    const auto job = session.api().get(job_path(id), of_project(session));
    const bool over = is_over(job.at("phase").as_string());
    if (!over) line.show(job);
    const auto newest = std::max<std::int64_t>(job.at("attempts").as_int64(), attempt);
    if (attempt == 0) attempt = newest;
    tasks = std::max(tasks, job.at("tasks").as_int64());
    bool more = false, waits = goes_on;
    for (std::int64_t rank = 0; rank < tasks; ++rank) {
      auto query = of_project(session);
      query.emplace_back("rank", std::to_string(rank));
      query.emplace_back("offset", std::to_string(offsets[rank]));
      if (attempt > 0) query.emplace_back("attempt", std::to_string(attempt));
      if (std::exchange(waits, false)) query.emplace_back("wait", kLiveWait);
      const auto page = session.api().get(job_path(id, "/logs"), query);
      const auto next = page.at("next_offset").as_int64();
      more |= next > offsets[rank];
      offsets[rank] = next;
      auto& text = open[rank] += page.at("text").as_string();
      for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
        line.clear();
        session.output().raw(fmt::format("[{}] {}", rank, text.substr(0, end + 1)));
        text.erase(0, end + 1);
      }
    }
    std::fflush(stdout);
    if (more) continue;
    if (goes_on && attempt < newest) {
      attempt += 1;
      offsets.clear();
    } else if (over || !goes_on) {
      for (const auto& [rank, text] : open)
        if (!text.empty()) session.output().raw(fmt::format("[{}] {}\n", rank, text));
      return;
    }
  }
}

void submit(Session& session, const SubmitOptions& options) {
  json::object body;
  json::array sources, jobs;
  for (const auto& file : options.files) sources.push_back(json::object{{"file", file}, {"text", text_of_jobs(file)}});
  if (!session.after_dashes.empty()) jobs.push_back(job_of(options, session.after_dashes));
  if (sources.empty() && jobs.empty())
    throw Error(Code::invalid, "say it so: falaj submit [OPTIONS] -- COMMAND..., or falaj submit -f FILE");
  body = {{"sources", sources}, {"jobs", jobs}};
  if (options.profile) body["profile"] = true;
  const auto answer = session.api().post("/v1/jobs", body, of_project(session));
  const auto& made = answer.at("jobs").as_array();
  if (!session.output().for_people() && !options.wait) return session.output().value(answer);
  for (const auto& job : made) {
    const auto* array = job.as_object().if_contains("array");
    if (options.wait) continue;
    if (array)
      session.output().line(
          fmt::format("{} {} jobs", std::string_view(array->as_string()), job.at("count").as_int64()));
    else
      session.output().line(job.at("id").as_string());
  }
  if (!options.wait) return;
  for (const auto& job : made) {
    LogsOptions logs;
    logs.follows = true;
    const auto ended = follow(session, std::string(job.at("id").as_string()), logs);
    if (ended.at("phase").as_string() == "succeeded") continue;
    if (!session.quiet)
      fmt::print(stderr, "{}: {}\n", std::string_view(ended.at("phase").as_string()),
                 harmless(ended.at("why").as_string()));
    const auto* code = ended.as_object().if_contains("exit_code");
    session.status = code && code->as_int64() != 0 ? static_cast<int>(code->as_int64() & 0xff) : EXIT_FAILURE;
  }
}

void add_submit(CLI::App& app, Session& session) {
  const auto o = std::make_shared<SubmitOptions>();
  auto* c = app.add_subcommand("submit", "Submit a job: falaj submit --cpus 2 -- python train.py, or -f job.yaml");
  c->add_option("-f,--file", o->files, "YAML of kind Job; - is standard input; may be repeated");
  c->add_option("--name", o->name, "Its name; that of the program when absent");
  c->add_option("--label", o->labels, "KEY=VALUE; may be repeated");
  c->add_option("--cpus", o->cpus, "Processors of each task")->capture_default_str();
  c->add_option("--memory", o->memory, "Memory of each task, such as 4GiB (default 1GiB)");
  c->add_option("--disk", o->disk, "What each task may write into its work directory");
  c->add_option("--gpus", o->gpus, "GPUs of each task; a share such as 0.5 will do");
  c->add_option("--gpu-type", o->gpu_type, "Only of this type");
  c->add_option("--tasks,-n", o->tasks, "Processes that start together")->capture_default_str();
  c->add_option("--tasks-min", o->tasks_min, "So many are enough to begin with");
  c->add_option("--spares", o->spares, "So many of them may be killed while the others go on");
  c->add_option("--array", o->array, "So many times the same job");
  c->add_option("--parallel", o->parallel, "At most so many of the array at once");
  c->add_option("--queue", o->queue, "Where it waits");
  c->add_option("--priority", o->priority, "A PriorityClass");
  c->add_option("--executor", o->executor, "Where it runs");
  c->add_option("--time-limit", o->limit, "It is stopped after so long, such as 2h");
  c->add_option("--expected", o->expected, "How long it probably runs");
  c->add_option("--deadline", o->deadline, "When it must be done, such as 2026-01-31T12:00:00Z");
  c->add_option("--grace", o->grace, "Between SIGTERM and SIGKILL (default 30s)");
  c->add_option("--store-checkpoint", o->store_checkpoint,
                "How often a copy of $FALAJ_CHECKPOINT_DIR goes into the blob store, such as 10m (default never)");
  c->add_option("--retries", o->retries, "How often it is tried again when it fails");
  c->add_flag("--preemptible", o->preemptible, "May be stopped for more urgent work, and started again");
  c->add_option("--after-ok", o->after_ok, "A job or array that must have succeeded; may be repeated");
  c->add_option("--after-any", o->after_any, "A job or array that must have ended; may be repeated");
  c->add_option("--env", o->environment, "KEY=VALUE of its environment; may be repeated");
  c->add_option("--secret", o->secrets, "VARIABLE=NAME of a secret of the project; may be repeated");
  c->add_option("--input", o->inputs, "NAME=dataset:flights@3, artifact:RUN/path or blob:NAME; may be repeated");
  c->add_option("--image", o->image, "Its root file system, one of the server's images");
  c->add_option("--network", o->network, "none or host (default none)");
  c->add_option("--isolation", o->isolation, "It must be kept apart at least so far");
  c->add_option("--experiment", o->experiment, "Of its tracked run");
  c->add_flag("--no-run", o->no_run, "Without a tracked run: what it leaves in $FALAJ_OUTPUTS is lost");
  c->add_flag("--wait,-w", o->wait, "Print what its first task writes, and end as it does");
  c->footer("What to run stands after '--'.");
  c->callback([&session, o] { submit(session, *o); });
}

void add_train(CLI::App& app, Session& session) {
  const auto o = std::make_shared<SubmitOptions>();
  auto* c = app.add_subcommand("train", "Train a model as a file of kind Training says: falaj train -f train.yaml -w");
  c->add_option("-f,--file", o->files, "YAML of kind Training; - is standard input; may be repeated")->required();
  c->add_flag("--wait,-w", o->wait, "Show how it goes on, and end as it does");
  c->add_flag("--profile", o->profile, "Leave a trace of where the time went, profile.json, among the run's files");
  c->footer("It is a job like any other: see falaj job --help. The model is registered when it has succeeded.");
  c->callback([&session, o] { submit(session, *o); });
}

struct ListOptions {
  std::string phase, queue, owner, name, array;
  bool live = false;
  std::int64_t limit = 50;
};

json::array jobs_of(Session& session, const ListOptions& o) {
  auto query = of_project(session);
  for (const auto& [key, value] :
       {std::pair("phase", &o.phase), {"queue", &o.queue}, {"owner", &o.owner}, {"name", &o.name}, {"array", &o.array}})
    if (!value->empty()) query.emplace_back(key, *value);
  if (o.live) query.emplace_back("live", "true");
  query.emplace_back("limit", std::to_string(o.limit));
  return session.api().get("/v1/jobs", query).at("items").as_array();
}

const std::vector<Column> kJobColumns = {{"JOB", "id"},         {"NAME", "name"},           {"PHASE", "phase"},
                                         {"QUEUE", "queue"},    {"OWNER", "owner"},         {"TASKS", "tasks"},
                                         {"TRIES", "attempts"}, {"SUBMITTED", "submitted"}, {"WHY", "why"}};

const std::vector<Column> kJobDetails = {{"job", "id"},
                                         {"name", "name"},
                                         {"phase", "phase"},
                                         {"why", "why"},
                                         {"queue", "queue"},
                                         {"owner", "owner"},
                                         {"array", "array"},
                                         {"index", "array_index"},
                                         {"submitted", "submitted"},
                                         {"started", "started"},
                                         {"ended", "ended"},
                                         {"idle since", "idle_since"},
                                         {"attempts", "attempts"},
                                         {"preemptions", "preemptions"},
                                         {"executor", "executor"},
                                         {"isolation", "isolation"},
                                         {"nodes", "nodes"},
                                         {"reason", "reason"},
                                         {"exit code", "exit_code"},
                                         {"signal", "signal"},
                                         {"processor time", "cpu_us", As::duration},
                                         {"memory peak", "memory_peak_bytes", As::bytes},
                                         {"run", "run_id"}};

void explain_job(Session& session, const std::string& id) {
  const auto answer = session.api().get(job_path(id, "/explain"), of_project(session));
  session.output().details(answer, {{"job", "id"},
                                    {"phase", "phase"},
                                    {"reason", "reason"},
                                    {"because", "text"},
                                    {"behind", "behind"},
                                    {"starts by", "promised"},
                                    {"probably", "start_p50"},
                                    {"very likely by", "start_p90"}});
}

// "cancel" or "requeue", of each.
void change_jobs(Session& session, const std::vector<std::string>& ids, std::string_view what) {
  json::array done;
  for (const auto& id : ids)
    done.push_back(session.api().post(job_path(id, fmt::format("/{}", what)), json::object{}, of_project(session)));
  session.output().table(done, {{"JOB", "id"}, {"NAME", "name"}, {"PHASE", "phase"}, {"WHY", "why"}});
}

}  // namespace

void add_job_commands(CLI::App& app, Session& session) {
  add_submit(app, session);
  add_train(app, session);
  auto* job = app.add_subcommand("job", "Jobs: what waits, runs and has ended");
  job->require_subcommand(1);

  const auto listed = std::make_shared<ListOptions>();
  auto* ls = job->add_subcommand("ls", "Jobs, newest first");
  ls->add_option("--phase", listed->phase, "Only those in it, such as running");
  ls->add_option("--queue", listed->queue, "Only those of a queue");
  ls->add_option("--owner", listed->owner, "Only those of somebody, such as user/acme/ada");
  ls->add_option("--name", listed->name, "Only those of that name");
  ls->add_option("--array", listed->array, "Only members of an array");
  ls->add_flag("--live", listed->live, "Only those that have not ended");
  ls->add_option("--limit", listed->limit, "At most so many")->capture_default_str()->check(CLI::Range(1, 1000));
  ls->callback([&session, listed] { session.output().table(jobs_of(session, *listed), kJobColumns); });

  const auto ids = std::make_shared<std::vector<std::string>>();
  const auto one = [ids](CLI::App* command) {
    command->add_option("job", *ids, "Its id")->required()->expected(1);
    return command;
  };
  const auto many = [ids](CLI::App* command) {
    command->add_option("job", *ids, "Their ids")->required();
    return command;
  };
  one(job->add_subcommand("show", "One job: where it is, and how it went"))->callback([&session, ids] {
    session.output().details(session.api().get(job_path(ids->at(0)), of_project(session)), kJobDetails);
  });
  one(job->add_subcommand("explain", "Why a job waits, and until when"))->callback([&session, ids] {
    explain_job(session, ids->at(0));
  });
  one(job->add_subcommand("events", "What a job was, one after the other"))->callback([&session, ids] {
    const auto answer = session.api().get(job_path(ids->at(0), "/events"), of_project(session));
    session.output().table(answer.at("items").as_array(),
                           {{"TIME", "at"}, {"PHASE", "phase"}, {"ATTEMPT", "attempt"}, {"WHY", "why"}});
  });
  const auto o = std::make_shared<LogsOptions>();
  auto* logs = one(job->add_subcommand("logs", "What a task of a job wrote"));
  logs->add_option("--rank", o->rank, "Of which task")->capture_default_str();
  logs->add_flag("-f,--follow", o->follows, "Go on until the job has ended");
  auto* of_all = logs->add_flag("--all", o->all, "Of all tasks, each line with its rank before it");
  logs->add_option("--attempt", o->attempt, "Of this attempt only; without it, from the newest on")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes(of_all);
  logs->add_option("--tail", o->tail, "Of what is there already only the last so many lines")
      ->check(CLI::Range(std::size_t{1}, LogLines::kTailMax))
      ->excludes(of_all);
  logs->add_option("--search", o->search, "Only lines that hold this text")->excludes(of_all);
  logs->callback([&session, ids, o] {
    if (o->all)
      follow_all(session, ids->at(0), o->follows);
    else
      follow(session, ids->at(0), *o);
  });
  many(job->add_subcommand("cancel", "Stop jobs for good"))->callback([&session, ids] {
    change_jobs(session, *ids, "cancel");
  });
  many(job->add_subcommand("requeue", "Stop jobs and start them again, or start again those that ended"))
      ->callback([&session, ids] { change_jobs(session, *ids, "requeue"); });
  add_top_command(*job, session);
  add_queue_commands(app, session);
  add_secret_commands(app, session);
}

}  // namespace falaj::cli
