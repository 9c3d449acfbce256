// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/jobs.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/sys/power.h"
#include "lifecycle/jobs/hooks.h"
#include "lifecycle/jobs/together.h"

namespace falaj::jobs {
namespace {

constexpr sys::Micros kRestAfterFailure = std::chrono::seconds(1), kLogLook = std::chrono::milliseconds(50);
constexpr sys::Micros kDeadlineAsked = std::chrono::seconds(2);  // at most, of the dispatcher by who submits
constexpr std::size_t kDeadlinesAsked = 32;                      // of one call
constexpr int kKeepTries = 6;

std::vector<std::string> names_of(const Jobs::Executors& executors) {
  std::vector<std::string> out;
  for (const auto& entry : executors) out.push_back(entry.first);
  return out;
}

schedule::JobFacts facts_of(const Record& record) {
  const auto limit = record.spec->time_limit_us;
  return {record.owner, record.name, static_cast<int>(record.spec->tasks),
          limit > 0 ? schedule::Micros(limit) : schedule::kNever};
}

std::string in_words(const schedule::Wait& wait) {
  using schedule::Reason;
  switch (wait.reason) {
    case Reason::held:
      return "waits for " + wait.detail;
    case Reason::not_before:
      return "may not start yet";
    case Reason::limit:
      return fmt::format("queue {} has reached its limit", wait.detail);
    case Reason::guarantee:
      return fmt::format("queue {} may not borrow beyond what is guaranteed to it", wait.detail);
    case Reason::no_node:
      return fmt::format("no node that is up is of such a shape: {}", wait.detail);
    case Reason::zone:
      return "nodes of such a shape are in other zones only";
    case Reason::reservation:
      return fmt::format("what is free is promised to job {}", wait.behind.str());
    case Reason::resources:
      return "every node of such a shape is in use";
    case Reason::displacing:
      return "others were told to stop for it";
  }
  return std::string(schedule::name_of(wait.reason));
}

LaunchOptions with_secrets(LaunchOptions options, const Secrets& secrets) {
  options.reveal = [&secrets](const Where& where, const std::string& name) { return secrets.reveal(where, name); };
  return options;
}

UsedSeen used_by(const std::string& name, execute::Executor& of, const std::vector<execute::Report>& reports) {
  UsedSeen out{name, {}};
  for (const auto& report : reports) {
    if (report.phase != execute::Phase::running) continue;
    try {
      if (const auto used = of.used(report.attempt)) out.cpu.emplace_back(report.attempt, used->cpu);
    } catch (const Error&) {  // it has ended, or the executor is away: nothing is lost by not knowing
      break;
    }
  }
  return out;
}

}  // namespace

// Carries out on threads of its own what the dispatcher decided.
class Jobs::LiveHands final : public Hands {
 public:
  LiveHands(Jobs& jobs, const JobsOptions& options)
      : jobs_(jobs),
        hooks_(options.hooks_directory.empty()
                   ? std::filesystem::path(options.launch.directory).parent_path().string() + "/hooks"
                   : options.hooks_directory),
        keepers_(options.keepers),
        scalers_(1) {
    for (const auto& entry : jobs.executors_) crews_.try_emplace(entry.first, options.starters);
  }
  void stop_all() {
    for (auto& entry : crews_) {
      entry.second.starters.stop();
      entry.second.talkers.stop();
    }
    scalers_.stop();
    keepers_.stop();
  }

  void start(const Record& record) override {
    crew(record.life.executor).starters.give([this, record] {
      Started news{record.id, record.life.epoch, "", std::nullopt, true};
      try {
        news.asked = false;
        auto prepared = jobs_.launches_.prepare(record);
        jobs_.hand_over(record, prepared.launch);
        news.run_id = prepared.run_id;
        news.asked = true;
        jobs_.executor(record.life.executor).start(prepared.launch);
        auto running = record;
        running.life.run_id = prepared.run_id;
        jobs_.follow_also(std::move(running));
      } catch (const Error& e) {
        news.problem = e;
      } catch (const std::exception& e) {
        news.problem = Error(Code::internal, e.what());
      }
      jobs_.dispatcher_->tell(std::move(news));
    });
  }
  void stop(const std::string& executor, const std::string& attempt, Micros grace) override {
    talk(executor, "stop", [this, executor, attempt, grace] { jobs_.executor(executor).stop(attempt, grace); });
  }
  void forget(const std::string& executor, const std::string& attempt) override {
    if (const auto name = parse_attempt(attempt)) jobs_.store_checkpoint(name->job);
    talk(executor, "forget", [this, executor, attempt] {
      jobs_.launches_.ended(executor, attempt);
      jobs_.executor(executor).forget(attempt);
    });
  }
  void keep(const Record& record) override {
    {
      Lock lock(jobs_.mu_);
      jobs_.followed_.erase(record.id);
    }
    keepers_.give([this, record] {
      KeptAll news{record.id, record.life.epoch, ""};
      for (int tries = 1; !jobs_.stopping(); ++tries) {  // stopped meanwhile, it is kept after the next start
        try {
          news.problem.clear();
          jobs_.launches_.keep(record);
        } catch (const Error& e) {
          news.problem = e.what();
          if (e.retryable() && tries < kKeepTries) {
            jobs_.rest(kRestAfterFailure * tries);
            continue;
          }
        } catch (const std::exception& e) {
          news.problem = e.what();
        }
        jobs_.dispatcher_->tell(std::move(news));
        return;
      }
    });
  }
  void keep_beside(std::function<void()> work) { keepers_.give(std::move(work)); }
  void tidy(const Record& record) override {
    keepers_.give([this, record] {
      try {
        jobs_.launches_.tidy(record);
      } catch (const std::exception& e) {
        log::warn("job_not_tidied", {{"job", record.id.str()}, {"why", e.what()}});
      }
    });
  }

  void scale(const PoolOrder& order) override {
    scalers_.give([this, order] {
      Scaled news{order, ""};
      try {
        run_hook(hooks_, order, [this] { return jobs_.stopping(); });
      } catch (const std::exception& e) {
        news.problem = e.what();
      }
      jobs_.dispatcher_->tell(std::move(news));
    });
  }

 private:
  // Those who speak with one executor: when it does not answer, the others are not kept waiting.
  struct Crew {
    explicit Crew(std::size_t many) : starters(many), talkers(2) {}
    Workers starters, talkers;
  };
  Crew& crew(const std::string& executor) {
    const auto found = crews_.find(executor);
    return (found == crews_.end() ? crews_.begin() : found)->second;
  }

  // What fails is asked for again: stops by the dispatcher, forgetting when it is reported the next time.
  void talk(const std::string& executor, std::string_view what, std::function<void()> work) {
    crew(executor).talkers.give([what, work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& e) {
        log::warn("executor_failed", {{"doing", what}, {"why", e.what()}});
      }
    });
  }

  Jobs& jobs_;
  const std::string hooks_;
  std::map<std::string, Crew> crews_;  // by executor
  Workers keepers_, scalers_;
};

Jobs::Jobs(Parts parts, Executors executors, JobsOptions options)
    : parts_(std::move(parts)),
      executors_(std::move(executors)),
      options_(std::move(options)),
      ids_(parts_.clock, parts_.random),
      store_(parts_.database, [this](const Record& record) { return launches_.beside_placing(record); }),
      secrets_(parts_.database, options_.secrets_key, parts_.clock),
      launches_({parts_.database, parts_.directory, parts_.vault, parts_.track, parts_.clock, parts_.metrics},
                with_secrets(options_.launch, secrets_)) {
  CHECK(!executors_.empty(), "jobs need somewhere to run");
  hands_ = std::make_unique<LiveHands>(*this, options_);
  Dispatcher::Parts to{store_,
                       *hands_,
                       parts_.clock,
                       parts_.metrics,
                       [this] { return read_rules(parts_.resources, names_of(executors_)); },
                       [this](const Where& where) { return quotas(where); },
                       [this](const Where& where) { return zone_of(where); },
                       [this](const Record& record) { return guess(record); },
                       [this](const Record& record, const Spent& spent) { learn(record, spent); }};
  dispatcher_ = std::make_unique<Dispatcher>(std::move(to), options_.dispatcher);
  parts_.bell->set([this] {
    dispatcher_->tell(RulesChanged{});
    Lock lock(mu_);
    rules_.reset();
  });
}

Jobs::~Jobs() {
  stop();
  parts_.bell->set({});
}

void Jobs::follow_also(Record record) {
  const auto every = record.spec->checkpoint.store_us;
  if (record.life.run_id.empty() && every == 0 && !record.spec->preemptible) return;
  const auto id = record.id;
  const auto next = parts_.clock.wall() + sys::Micros(every);
  Lock lock(mu_);
  auto& followed = followed_[id];
  const bool storing = followed.storing;  // of the attempt before
  followed = {std::move(record), 0, std::move(followed.stored), next, storing, 0};
}

// A copy of what its checkpoint directory has now, by whoever has time.
void Jobs::store_checkpoint(JobId id) {
  Followed one;
  {
    Lock lock(mu_);
    const auto found = followed_.find(id);
    if (found == followed_.end() || found->second.record.spec->checkpoint.store_us == 0 || found->second.storing)
      return;
    found->second.storing = true;
    one = found->second;
  }
  hands_->keep_beside([this, one = std::move(one)] {
    auto stored = one.stored;
    try {
      // A job that has succeeded needs it no more.
      const auto now = store_.find(one.record.id);
      if (!now || (now->life.verdict != name_of(Phase::succeeded) && now->life.phase != Phase::succeeded))
        stored = launches_.store_checkpoint(one.record, one.stored);
    } catch (const std::exception& e) {
      log::warn("checkpoint_not_stored", {{"job", one.record.id.str()}, {"why", e.what()}});
    }
    Lock lock(mu_);
    const auto found = followed_.find(one.record.id);
    if (found == followed_.end()) return;
    found->second.storing = false;
    found->second.stored = std::move(stored);
    found->second.store_next = parts_.clock.wall() + sys::Micros(one.record.spec->checkpoint.store_us);
  });
}

void Jobs::follow() {
  std::vector<Followed> all;
  {
    Lock lock(mu_);
    for (const auto& entry : followed_) all.push_back(entry.second);
  }
  for (auto& one : all) {
    if (one.record.spec->checkpoint.store_us > 0 && one.store_next <= parts_.clock.wall())
      store_checkpoint(one.record.id);
    const auto& life = one.record.life;
    if (const auto saved = launches_.saved_us(one.record); saved > one.saved_us) {
      one.saved_us = saved;
      dispatcher_->tell(Saved{one.record.id, life.epoch, saved});
    }
    try {
      one.offset = launches_.follow(one.record, one.offset);
    } catch (const std::exception& e) {
      log::warn("job_not_followed", {{"job", one.record.id.str()}, {"why", e.what()}});
      continue;
    }
    Lock lock(mu_);
    if (const auto found = followed_.find(one.record.id);
        found != followed_.end() && found->second.record.life.epoch == life.epoch) {
      found->second.offset = one.offset;
      found->second.saved_us = one.saved_us;
    }
  }
}

void Jobs::start() {
  for (auto& record : store_.live())
    if (record.life.phase == Phase::running) follow_also(std::move(record));
  threads_.emplace_back([this] { dispatch(); });
  for (const auto& entry : executors_) threads_.emplace_back([this, name = entry.first] { watch(name); });
}

void Jobs::stop() {
  {
    Lock lock(mu_);
    stopping_ = true;
    stop_asked_.notify_all();
  }
  dispatcher_->wake();
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
  threads_.clear();
  hands_->stop_all();
}

void Jobs::rest(sys::Micros span) {
  Lock lock(mu_);
  if (!stopping_) lock.wait_for(stop_asked_, span);
}

void Jobs::dispatch() {
  bool loaded = false;
  while (!stopping()) {
    try {
      if (!loaded) {
        remember();
        dispatcher_->load();
        loaded = true;
      }
      dispatcher_->wait(dispatcher_->step());
    } catch (const Error& e) {
      if (stopping()) return;
      log::error("dispatcher_failed", {{"why", e.what()}});
      loaded = false;  // what it believes may be more than what is stored
      rest(kRestAfterFailure);
    }
  }
}

// How long jobs took before this start, so that the first guesses are not blind.
void Jobs::remember() {
  constexpr std::size_t kRemembered = 5000;
  {
    Lock lock(mu_);
    if (remembered_) return;
  }
  const auto past = store_.ran(kRemembered);
  Lock lock(mu_);
  for (const auto& one : past) {
    ran_.insert({one.owner, one.name});
    predictor_.learn({one.owner, one.name, static_cast<int>(one.tasks),
                      one.time_limit_us > 0 ? schedule::Micros(one.time_limit_us) : schedule::kNever},
                     schedule::Micros(one.ran_us));
  }
  remembered_ = true;
}

void Jobs::watch(const std::string& name) {
  auto& of = executor(name);
  std::uint64_t seen = 0;
  sys::Micros nodes_due{0}, usage_due = parts_.clock.now() + options_.usage_every;
  sys::EnergyRate energy(options_.power_directory, options_.stat_file);
  bool silent = false;
  auto& answers =
      parts_.metrics.gauge("falaj_jobs_executor_up", "1 while an executor answers, 0 while not.", {{"executor", name}});
  while (!stopping()) {
    try {
      if (parts_.clock.now() >= nodes_due) {
        dispatcher_->tell(NodesSeen{name, of.nodes()});
        nodes_due = parts_.clock.now() + options_.nodes_every;
      }
      auto reports = of.poll(seen, options_.poll_wait);
      if (parts_.clock.now() >= usage_due) {
        auto used = used_by(name, of, reports);
        if (!options_.launch.elsewhere.contains(name)) used.joules_per_cpu_second = energy.look();
        dispatcher_->tell(std::move(used));
        usage_due = parts_.clock.now() + options_.usage_every;
      }
      dispatcher_->tell(Seen{name, std::move(reports)});
      if (silent) log::info("executor_answers", {{"executor", name}});
      silent = false;
      answers.Set(1);
    } catch (const Error& e) {
      if (stopping()) return;
      answers.Set(0);
      if (!silent) log::warn("executor_silent", {{"executor", name}, {"why", e.what()}});
      silent = true;
      rest(kRestAfterFailure);
    }
  }
}

execute::Executor& Jobs::executor(const std::string& name) const {
  for (const auto& [known, executor] : executors_)
    if (known == name) return *executor;
  throw Error(Code::unavailable, fmt::format("executor '{}' is not in the server's settings", name));
}

// To one that queues and places by itself: how urgent it is, and nodes only where not every one of them will do.
void Jobs::hand_over(const Record& record, execute::Launch& launch) {
  const auto found = options_.launch.elsewhere.find(record.life.executor);
  if (found == options_.launch.elsewhere.end()) return;
  const auto rules = this->rules();
  const auto& spec = *record.spec;
  const auto priority = rules->classes.find(spec.priority_class.empty() ? rules->default_class : spec.priority_class);
  if (priority != rules->classes.end()) launch.priority = priority->second.value;
  if (!found->second.places) return;
  const bool chosen = !spec.nodes.labels.empty() || !spec.nodes.not_labels.empty() || !spec.nodes.zones.empty();
  const bool zoned = std::any_of(rules->pools.begin(), rules->pools.end(), [&](const auto& pool) {
    return !pool.second.zone.empty() && pool.second.zone != found->second.zone;
  });
  if (chosen || zoned) return;
  for (auto& task : launch.tasks) task.node.clear();
}

std::shared_ptr<const Rules> Jobs::rules() {
  {
    Lock lock(mu_);
    if (rules_) return rules_;
  }
  auto made = std::make_shared<const Rules>(read_rules(parts_.resources, names_of(executors_)));
  Lock lock(mu_);
  return rules_ = std::move(made);
}

std::vector<std::pair<std::string, std::int64_t>> Jobs::quotas(const Where& where) const {
  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const auto& quota : parts_.directory.snapshot()->quotas(where.scope()))
    if (quota.concurrent_jobs) out.emplace_back(fmt::format("quota {}", quota.scope.str()), *quota.concurrent_jobs);
  return out;
}

std::string Jobs::zone_of(const Where& where) const {
  const auto snapshot = parts_.directory.snapshot();
  const auto* project = snapshot->find<iam::Project>(iam::owned_name(where.tenant.str(), where.project.str()));
  return project ? project->zone.str() : "";
}

schedule::Guess Jobs::guess(const Record& record) {
  const auto expected = record.spec->expected_us;
  if (expected > 0) {
    const double seconds = std::max(static_cast<double>(expected) / 1e6, 1.0);
    const auto limit = record.spec->time_limit_us;
    return {schedule::Micros(expected), schedule::Micros(limit > 0 ? std::min(2 * expected, limit) : 2 * expected),
            1 / (seconds * seconds)};
  }
  Lock lock(mu_);
  return predictor_.guess(facts_of(record));
}

void Jobs::learn(const Record& record, const Spent& spent) {
  if (spent.reason == "node_lost" || spent.reason == "stopped" || spent.reason == "not_started") return;
  constexpr std::size_t kRanMax = 100'000;
  Lock lock(mu_);
  if (ran_.size() < kRanMax) ran_.insert({record.owner, record.name});
  predictor_.learn(facts_of(record), schedule::Micros(spent.ended_us - spent.started_us));
}

// ---- submitting

void Jobs::check_new(const Where& where, const NewJob& job, const Rules& rules, const std::set<std::string>& together,
                     Faults& faults) {
  check(job.spec, faults);
  check(job.spec, where.tenant.str(), rules, faults);
  const auto snapshot = parts_.directory.snapshot();
  const auto* tenant = snapshot->find<iam::Tenant>(where.tenant.str());
  for (const auto& zone : job.spec.nodes.zones)
    if (!tenant || std::find(tenant->zones.begin(), tenant->zones.end(), ZoneName{zone}) == tenant->zones.end())
      faults.push_back({"spec.nodes.zones", fmt::format("'{}' is none of the tenant's zones", zone)});
  const auto elsewhere = options_.launch.elsewhere.find(rules.executor_of(where.tenant.str(), job.spec));
  if (elsewhere != options_.launch.elsewhere.end()) {
    const auto& users = elsewhere->second.tenants;
    if (!users.empty() && std::find(users.begin(), users.end(), where.tenant.str()) == users.end())
      faults.push_back({"spec.executor", fmt::format("'{}' is not for this tenant", elsewhere->first)});
  }
  for (const auto& [variable, secret] : job.spec.secrets)
    if (faults.empty() && !secrets_.has(where, secret))
      faults.push_back({"spec.secrets." + variable, fmt::format("no secret '{}' in this project", secret)});
  for (const auto& [list, at] :
       {std::pair(&job.spec.after.ok, "spec.after.ok"), {&job.spec.after.any, "spec.after.any"}})
    for (std::size_t i = 0; i < list->size(); ++i)
      if (faults.empty() && !together.contains((*list)[i]) && !store_.is_in(where, (*list)[i]))
        faults.push_back({fmt::format("{}[{}]", at, i), fmt::format("no job {} in this project", (*list)[i])});
}

// Refuses what cannot be done in time even if it were the next in line. What nobody can tell is let in: a node may
// come, and what has no time limit may end.
void Jobs::check_deadline(const Where& where, const std::string& owner, const NewJob& job, const Rules& rules,
                          Faults& faults) {
  const auto deadline = parse_time(job.spec.deadline).value_or(0);
  const auto now = parts_.clock.wall().count();
  auto begins = std::max(now, parse_time(job.spec.not_before).value_or(0));
  auto lasts = job.spec.expected_us;
  const auto known_class =
      rules.classes.find(job.spec.priority_class.empty() ? rules.default_class : job.spec.priority_class);
  const bool displaces = known_class != rules.classes.end() && known_class->second.preempts;
  if (begins + lasts <= deadline && !displaces) {
    Record record;
    record.id = ids_.next<schedule::JobTag>();
    record.where = where;
    record.name = job.name;
    record.owner = owner;
    record.submitted_us = now;
    record.spec = std::make_shared<const JobSpec>(job.spec);
    if (const auto could = dispatcher_->earliest(record, kDeadlineAsked)) {
      begins = std::max(begins, could->p50.count());
      Lock lock(mu_);
      if (lasts == 0 && ran_.contains({owner, job.name})) lasts = could->p90.count();
    }
  }
  if (begins + lasts > deadline)
    faults.push_back({"spec.deadline",
                      fmt::format("cannot be met: the earliest it can be done is {}", format_time(begins + lasts))});
}

std::vector<Record> Jobs::prepare(const Where& where, const std::string& owner, std::vector<NewJob> jobs,
                                  const std::function<std::string(std::size_t, const std::string&)>& place_of) {
  if (!parts_.directory.snapshot()->find<iam::Project>(iam::owned_name(where.tenant.str(), where.project.str())))
    throw Error(Code::not_found, fmt::format("no project {}/{}", where.tenant.str(), where.project.str()));
  const auto rules = this->rules();
  Faults faults;
  std::vector<IdBits> ids;  // of each, or of its array
  std::vector<std::string> names;
  for (std::size_t i = 0; i < jobs.size(); ++i) names.push_back(format_id(ids.emplace_back(ids_.next())));
  link_by_name(jobs, names, place_of, faults);
  const std::set<std::string> together(names.begin(), names.end());
  std::size_t many = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Faults own;
    check_new(where, jobs[i], *rules, together, own);
    // Each asks the dispatcher: of many, what the first could not do is enough to know.
    if (own.empty() && i < kDeadlinesAsked && !jobs[i].spec.deadline.empty())
      check_deadline(where, owner, jobs[i], *rules, own);
    for (auto& fault : own) faults.push_back({place_of(i, fault.where), std::move(fault.what)});
    many += jobs[i].spec.array ? static_cast<std::size_t>(jobs[i].spec.array->count) : 1;
  }
  refuse_if_any("job", std::move(faults));
  if (many > options_.submit_max)
    throw Error(Code::invalid, fmt::format("{} jobs at once; at most {}", many, options_.submit_max));
  const auto outlook = dispatcher_->outlook();
  if (outlook->pending + outlook->running + many > options_.live_max)
    throw Error(Code::exhausted, fmt::format("{} jobs are waiting or running: try again later", outlook->pending));
  std::vector<Record> out;
  out.reserve(many);
  for (std::size_t at = 0; at < jobs.size(); ++at) {
    auto& job = jobs[at];
    const auto count = job.spec.array ? job.spec.array->count : 1;
    const auto array = job.spec.array ? names[at] : "";
    Record record;
    record.where = where;
    record.name = std::move(job.name);
    record.owner = owner;
    record.labels = std::move(job.labels);
    record.spec = std::make_shared<const JobSpec>(std::move(job.spec));
    record.array = array;
    record.submitted_us = parts_.clock.wall().count();
    record.life.why = "submitted by " + owner;
    record.life.not_before_us = parse_time(record.spec->not_before).value_or(0);
    for (std::int64_t i = 0; i < count; ++i) {
      record.id = array.empty() ? JobId{ids[at]} : ids_.next<schedule::JobTag>();
      record.array_index = i;
      out.push_back(record);
    }
  }
  return out;
}

void Jobs::insert(sql::Writer& writer, const std::vector<Record>& records) {
  store_.insert(writer, records);
  writer.after_commit([this, records] { dispatcher_->tell(Submitted{records}); });
}

void Jobs::wish(sql::Writer& writer, const Where& where, const Wish& wish) {
  store_.wish(writer, where, wish);
  writer.after_commit([this, wish] { dispatcher_->tell(Wished{wish}); });
}

// ---- looking

Explanation Jobs::explain(const Record& record) {
  Explanation out;
  const auto outlook = dispatcher_->outlook();
  if (record.life.phase != Phase::pending && record.life.phase != Phase::admitted) {
    out.text = std::string(name_of(record.life.phase)) + (record.life.why.empty() ? "" : ": " + record.life.why);
    return out;
  }
  if (const auto start = dispatcher_->start_of(record.id)) {
    out.start_p50_us = start->p50.count();
    out.start_p90_us = start->p90.count();
  }
  for (const auto& promised : outlook->promised)
    if (promised.job == record.id) out.promised_us = promised.start.count();
  for (const auto& wait : *outlook->waits) {
    if (wait.job != record.id) continue;
    out.reason = schedule::name_of(wait.reason);
    out.text = in_words(wait);
    if (wait.reason == schedule::Reason::not_before && record.life.not_before_us > 0)
      out.text += " before " + format_time(record.life.not_before_us);
    if (wait.reason == schedule::Reason::no_node || wait.reason == schedule::Reason::resources)
      for (const auto& pool : outlook->pools)
        if (pool.coming > 0) out.text += fmt::format("; {} nodes of pool {} are coming", pool.coming, pool.name);
    if (!wait.behind.empty()) out.behind = wait.behind.str();
    if (wait.reserved != schedule::kNever) out.promised_us = wait.reserved.count();
    return out;
  }
  out.reason = "new";
  out.text = "has not been looked at yet";
  return out;
}

std::vector<QueueView> Jobs::queues(const std::string& tenant) {
  std::vector<QueueView> out;
  const auto rules = this->rules();
  const auto outlook = dispatcher_->outlook();
  for (const auto& queue : rules->queues) {
    const auto slash = queue.name.find('/');
    if (!tenant.empty()) {
      if (slash != std::string::npos && queue.name.substr(0, slash) != tenant) continue;
      if (slash == std::string::npos && rules->queue_of(tenant, queue.name) == std::nullopt) continue;
    }
    QueueView view{queue.name, queue.parent, queue.weight, 0, 0, 0, 0, 0};
    for (const auto& [seen, held, pending, running] : outlook->queues) {
      if (seen.name != queue.name) continue;
      view.pending = pending;
      view.running = running;
      view.cpus = static_cast<double>(held.cpu_millis) / 1000;
      view.gpus = static_cast<double>(held.gpu_millis) / 1000;
      view.memory_gib = static_cast<double>(held.memory_bytes) / static_cast<double>(1 << 30);
    }
    out.push_back(std::move(view));
  }
  return out;
}

std::vector<NodeView> Jobs::nodes() {
  std::vector<NodeView> out;
  const auto outlook = dispatcher_->outlook();
  for (std::size_t i = 0; i < outlook->nodes.size(); ++i) {
    const auto& node = outlook->nodes[i];
    const auto& free = outlook->free[i];
    const auto owner = node.labels.find(std::string(kExecutorLabel));
    out.push_back({node.name, node.zone, node.pool, owner == node.labels.end() ? "" : owner->second, node.up,
                   static_cast<double>(node.capacity.cpu_millis) / 1000, static_cast<double>(free.cpu_millis) / 1000,
                   static_cast<double>(node.capacity.gpu_millis) / 1000, static_cast<double>(free.gpu_millis) / 1000,
                   node.capacity.memory_bytes, free.memory_bytes});
  }
  return out;
}

execute::LogPage Jobs::logs(const Where& where, JobId id, std::int64_t epoch, int rank, std::int64_t offset,
                            std::int64_t bytes_max, sys::Micros wait) {
  const auto until = parts_.clock.now() + wait;
  for (;;) {
    const auto record = store_.job(where, id);
    const auto of = epoch > 0 ? epoch : record.life.epoch;
    if (of > record.life.epoch) throw Error(Code::not_found, fmt::format("job {} had no attempt {}", id.str(), of));
    const bool over = of < record.life.epoch || has_ended(record.life.phase);
    execute::LogPage page;
    page.next_offset = offset;
    page.ended = over;
    if (of > 0) {
      try {
        page = executor(record.life.executor).logs(attempt_name(id, of), rank, offset, bytes_max);
        page.ended = page.ended && (over || record.life.phase == Phase::finishing);
      } catch (const Error& e) {
        if (e.code() != Code::not_found) throw;  // not begun yet, or dropped since
      }
    }
    if (!page.text.empty() || page.ended || parts_.clock.now() >= until || stopping()) return page;
    rest(kLogLook);
  }
}

}  // namespace falaj::jobs
