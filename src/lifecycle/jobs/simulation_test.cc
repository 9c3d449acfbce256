// SPDX-License-Identifier: Apache-2.0
// The dispatcher in a world with one seed: executors that fail, nodes that are lost, messages that are lost, late and
// said twice, a database that is away, restarts at any time. A failing run is run again by its seed alone:
// FALAJ_SEED=17. FALAJ_SEEDS=1000 runs more of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/testing.h"
#include "lifecycle/jobs/dispatcher.h"
#include "lifecycle/jobs/launches.h"
#include "lifecycle/jobs/testing.h"

namespace falaj::jobs {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kQuota = 6;     // jobs at once of the project "small"
constexpr std::int64_t kCloudMax = 3;  // nodes
const char* const kZones[] = {"uae", "eu"};

execute::Node node(const std::string& name, const std::string& zone, int cpus, int gpus) {
  execute::Node out;
  out.name = name;
  out.zone = zone;
  out.cpu_millis = cpus * 1000;
  out.memory_bytes = cpus * 4 * kGiB;
  out.disk_bytes = 100 * kGiB;
  for (int i = 0; i < gpus; ++i) out.gpus.push_back({fmt::format("{}-gpu{}", name, i), "a100", 40 * kGiB});
  return out;
}

Rules rules() {
  Rules out;
  out.executors = {"local", "far"};
  using Bounds = std::optional<schedule::Amounts>;
  const auto queue = [&](const std::string& name, const std::string& parent, Bounds limit, Bounds guaranteed = {}) {
    schedule::Queue made;
    made.guaranteed = guaranteed;
    made.name = name;
    made.parent = parent;
    made.limit = limit;
    out.queues.push_back(made);
    out.queue_users[name] = {};
  };
  queue("default", "", std::nullopt);
  queue("team", "", schedule::Amounts{10'000, 64 * kGiB, 1000 * kGiB, 8000});
  queue("urgent", "team", std::nullopt);
  constexpr auto kAny = schedule::kUnbounded;
  queue("owner", "", std::nullopt, schedule::Amounts{8000, kAny, kAny, 2000});
  queue("owner-part", "owner", std::nullopt);
  queue("plain", "owner", schedule::Amounts{kAny, kAny, kAny, 0});
  out.classes["low"] = {0, false, true, {}};
  out.classes["high"] = {100, true, false, {}};
  out.default_class = "low";
  NodePoolSpec cloud;
  cloud.nodes = {"c*"};
  cloud.zone = "uae";
  cloud.scaling = "hooks";
  cloud.nodes_max = kCloudMax;
  cloud.cost_per_hour = 1;
  cloud.warm_up_us = 60 * kSecondUs;
  cloud.wait_target_us = 120 * kSecondUs;
  cloud.idle_after_us = 180 * kSecondUs;
  cloud.steady_for_us = 60 * kSecondUs;
  cloud.shape = NodeShapeSpec{8, 32 * kGiB, 100 * kGiB, 0, ""};
  cloud.hooks = PoolHooksSpec{"up", "down", 60 * kSecondUs};
  out.pools.emplace_back("cloud", cloud);
  return out;
}

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {
    FakeFaults faults;
    faults.start_lost = chance_of(0.1);
    faults.answer_lost = chance_of(0.1);
    faults.stop_lost = chance_of(0.2);
    faults.poll_fails = chance_of(0.2);
    faults.poll_stale = chance_of(0.2);
    faults.forget_lost = chance_of(0.3);
    faults.fails = chance_of(0.2);
    faults.crashes = chance_of(0.1);
    faults.saves = 1 - chance_of(0.5);
    faults.saves_unasked = chance_of(0.1);
    executors_["local"] = std::make_unique<FakeExecutor>(
        clock_, seed, std::vector{node("a1", "uae", 8, 4), node("a2", "uae", 8, 0), node("a3", "eu", 4, 2)}, faults);
    executors_["far"] = std::make_unique<FakeExecutor>(
        clock_, seed + 1, std::vector{node("b1", "eu", 16, 0), node("b2", "eu", 16, 8)}, faults);
    for (auto& entry : executors_) entry.second->run_for(seconds(1), minutes(20));
    restart();
  }

  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      meddle();
      live_for(Micros(static_cast<std::int64_t>(random_.below(20'000'000))));
    }
    calm_down();
  }

  std::uint64_t fingerprint() const { return book_.fingerprint(); }
  const MemoryBook& book() const { return book_; }
  std::vector<std::string> violations() const {
    auto out = violations_;
    for (const auto& entry : executors_)
      for (const auto& text : entry.second->violations()) out.push_back(text);
    return out;
  }
  std::size_t restarts() const { return restarts_; }
  std::size_t clouds() const { return clouds_; }
  std::size_t given_back() const { return given_back_; }
  std::size_t starts() const {
    std::size_t out = 0;
    for (const auto& entry : executors_) out += entry.second->starts();
    return out;
  }

 private:
  class SimHands final : public Hands {
   public:
    explicit SimHands(World& world) : world_(world) {}
    void start(const Record& record) override { world_.start(record); }
    void stop(const std::string& executor, const std::string& attempt, Micros grace) override {
      world_.executors_.at(executor)->stop(attempt, grace);
    }
    void forget(const std::string& executor, const std::string& attempt) override {
      world_.executors_.at(executor)->forget(attempt);
    }
    void keep(const Record& record) override {
      world_.later(KeptAll{record.id, record.life.epoch, world_.chance(0.1) ? "the store is full" : ""});
    }
    void tidy(const Record&) override {}
    void scale(const PoolOrder& order) override { world_.scale(order); }

   private:
    World& world_;
  };

  bool chance(double p) { return static_cast<double>(random_.below(1'000'000)) < p * 1e6; }
  // Some worlds are quiet in one way, others are not.
  double chance_of(double most) { return chance(0.4) ? 0 : most * static_cast<double>(random_.below(1000)) / 1000; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[random_.below(all.size())];
  }

  // ---- what surrounds the dispatcher
  void restart() {
    dispatcher_.reset();
    late_.clear();  // whoever would have heard is gone
    Dispatcher::Parts parts{book_,
                            hands_,
                            clock_,
                            metrics_,
                            rules,
                            [](const Where& where) {
                              std::vector<std::pair<std::string, std::int64_t>> out;
                              if (where.project.str() == "small") out.emplace_back("quota small", kQuota);
                              return out;
                            },
                            [](const Where& where) { return where.tenant.str() == "acme" ? "uae" : "eu"; },
                            [](const Record&) {
                              return schedule::Guess{minutes(10), minutes(20), 1e-5};
                            },
                            {}};
    dispatcher_ = std::make_unique<Dispatcher>(std::move(parts));
    if (chance(0.5)) see_nodes();  // sometimes the database is read before the nodes answer
    loaded_ = false;
    ++restarts_;
  }

  void start(const Record& record) {
    execute::Launch launch;
    launch.attempt = record.attempt();
    launch.command = record.spec->command;
    launch.tasks = tasks_of(record);
    launch.limits = {std::llround(record.spec->cpus * 1000), record.spec->memory_bytes, record.spec->disk_bytes, 0};
    launch.time_limit = Micros(record.spec->time_limit_us);
    launch.gpus_per_task = static_cast<std::int64_t>(record.spec->gpus);
    const auto tasks = static_cast<std::int64_t>(launch.tasks.size());
    if (tasks > record.spec->tasks || tasks < record.spec->tasks_min.value_or(record.spec->tasks))
      violations_.push_back(fmt::format("{} begins with {} tasks", launch.attempt, tasks));
    check_places(record);
    Started news{record.id, record.life.epoch, "run of " + record.id.str(), std::nullopt, true};
    try {
      if (chance(0.02)) {
        news.asked = false;
        throw Error(Code::not_found, "an input is gone");
      }
      executors_.at(record.life.executor)->start(launch);
    } catch (const Error& e) {
      news.problem = e;
    }
    later(std::move(news));
  }

  void scale(const PoolOrder& order) {
    Scaled news{order, chance(0.2) ? "the cloud is full" : ""};
    auto& local = *executors_.at("local");
    if (news.problem.empty() && !order.up) {
      for (const auto& name : order.names) local.remove_node(name);
      given_back_ += order.names.size();
    }
    for (std::int64_t i = 0; news.problem.empty() && order.up && i < order.nodes; ++i)
      if (!chance(0.1)) local.add_node(node(fmt::format("c{}", ++clouds_), "uae", 8, 0));  // or it never comes
    std::int64_t now = 0;
    for (const auto& one : local.nodes()) now += one.name.starts_with('c');
    if (now > kCloudMax) violations_.push_back(fmt::format("a pool of {} nodes has {}", kCloudMax, now));
    later(std::move(news));
  }

  void check_places(const Record& record) {
    const auto nodes = executors_.at(record.life.executor)->nodes();
    const std::string wanted = record.where.tenant.str() == "acme" ? "uae" : "eu";
    for (const auto& task : tasks_of(record)) {
      const auto on = std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.name == task.node; });
      if (on == nodes.end() || on->zone != (record.spec->nodes.zones.empty() ? wanted : record.spec->nodes.zones[0]))
        violations_.push_back(fmt::format("{} is placed on {}", record.attempt(), task.node));
      const auto wants = record.spec->gpus == 0  ? 0u
                         : record.spec->gpus < 1 ? 1u
                                                 : static_cast<unsigned>(record.spec->gpus);
      if (task.gpus.size() != wants)
        violations_.push_back(fmt::format("{} has {} GPUs a task", record.attempt(), task.gpus.size()));
    }
  }

  void later(News news) {
    if (chance(0.1)) late_.emplace(clock_.wall() + seconds(random_.below(30)), copy_of(news));  // told twice
    late_.emplace(clock_.wall() + milliseconds(random_.below(2000)), std::move(news));
  }
  static News copy_of(const News& news) { return news; }

  void see_nodes() {
    for (const auto& [name, executor] : executors_) dispatcher_->tell(NodesSeen{name, executor->nodes()});
  }
  void see_reports() {
    for (const auto& [name, executor] : executors_) {
      std::uint64_t seen = 0;
      try {
        later(Seen{name, executor->poll(seen, Micros(0))});
      } catch (const Error&) {
      }
    }
  }

  void step() {
    while (!late_.empty() && late_.begin()->first <= clock_.wall()) {
      dispatcher_->tell(std::move(late_.begin()->second));
      late_.erase(late_.begin());
    }
    try {
      if (!loaded_) dispatcher_->load();
      loaded_ = true;
      dispatcher_->step();
    } catch (const Error& e) {
      if (e.code() != Code::unavailable) violations_.push_back(fmt::format("a step threw: {}", e.what()));
      loaded_ = false;
    }
    check_now();
  }

  void live_for(Micros span) {
    const auto until = clock_.wall() + span;
    while (clock_.wall() < until && violations().empty()) {
      see_reports();
      see_nodes();
      step();
      clock_.advance(std::min<Micros>(milliseconds(200 + random_.below(5000)), until - clock_.wall()));
    }
    step();
  }

  // What must hold at every moment, in what is durable.
  void check_now() {
    std::int64_t small = 0;
    std::map<std::string, std::int64_t> arrays;
    schedule::Amounts team;
    for (const auto& entry : book_.all()) {
      const auto& record = entry.second.first;
      if (!is_placed(record.life.phase)) continue;
      small += record.where.project.str() == "small";
      if (record.spec->array && record.spec->array->parallel > 0 &&
          ++arrays[record.array] > record.spec->array->parallel)
        violations_.push_back(fmt::format("array {} runs too many at once", record.array));
      if (record.spec->queue == "plain" && record.spec->gpus > 0)
        violations_.push_back("a queue that may have no GPU has one");
      if (record.spec->queue != "team" && record.spec->queue != "urgent") continue;
      for (const auto& place : record.life.places) {
        team.cpu_millis += std::llround(record.spec->cpus * 1000) * place.tasks;
        team.gpu_millis += std::llround(record.spec->gpus * 1000) * place.tasks;
      }
    }
    if (small > kQuota) violations_.push_back("the quota of a project is exceeded");
    if (team.cpu_millis > 10'000 || team.gpu_millis > 8000) violations_.push_back("the limit of a queue is exceeded");
  }

  // ---- what people and fate do
  void meddle() {
    if (chance(0.7)) submit();
    if (chance(0.2)) wish("cancel");
    if (chance(0.1)) wish("requeue");
    if (chance(0.1)) {
      const auto& [executor, name] = one_of(nodes_);
      if (chance(0.5))
        executors_.at(executor)->lose_node(name);
      else
        executors_.at(executor)->set_node(name, true);
    }
    if (chance(0.08)) book_.fail_writes(static_cast<std::int64_t>(1 + random_.below(3)));
    if (chance(0.08)) restart();
    if (chance(0.05)) dispatcher_->tell(RulesChanged{});
  }

  void wish(const std::string& what) {
    if (ids_.empty()) return;
    const Wish made{one_of(ids_), what, "user/ada"};
    book_.wish(made);
    dispatcher_->tell(Wished{made});
  }

  void submit() {
    JobSpec spec;
    spec.command = {"train"};
    spec.cpus = one_of(std::vector<double>{0.5, 1, 2, 4, 8});
    spec.memory_bytes = static_cast<std::int64_t>(1 + random_.below(8)) * kGiB;
    spec.tasks = static_cast<std::int64_t>(1 + random_.below(4));
    if (chance(0.2))
      spec.tasks_min = 1 + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(spec.tasks)));
    if (chance(0.3)) spec.gpus = one_of(std::vector<double>{0.25, 0.5, 1, 2});
    spec.queue = one_of(std::vector<std::string>{"default", "team", "urgent", "owner-part", "plain"});
    if (spec.queue == "urgent") spec.priority_class = "high";
    spec.executor = one_of(std::vector<std::string>{"local", "far"});
    spec.preemptible = chance(0.5);
    spec.grace_us = static_cast<std::int64_t>(random_.below(30)) * kSecondUs;
    if (chance(0.5)) spec.time_limit_us = static_cast<std::int64_t>(60 + random_.below(1200)) * kSecondUs;
    spec.retries.max = static_cast<std::int64_t>(random_.below(3));
    if (chance(0.1))
      spec.deadline = format_time(clock_.wall().count() + static_cast<std::int64_t>(random_.below(3600)) * kSecondUs);
    if (chance(0.1))
      spec.array =
          ArraySpec{static_cast<std::int64_t>(2 + random_.below(6)), static_cast<std::int64_t>(random_.below(3))};
    for (auto* list : {&spec.after.ok, &spec.after.any})
      if (!ids_.empty() && chance(0.15)) list->push_back(one_of(ids_).str());
    // Some can never run: no node of that shape in their zone. They are cancelled at the end.
    const Where where{{spec.executor == "far" || chance(0.3) ? "globex" : "acme"}, {chance(0.3) ? "small" : "large"}};
    const auto count = spec.array ? spec.array->count : 1;
    const auto array = spec.array ? fmt::format("{:026}", ++made_) : "";
    const auto shared = std::make_shared<const JobSpec>(spec);
    std::vector<Record> records;
    for (std::int64_t i = 0; i < count; ++i) {
      Record record;
      record.id = {IdBits{static_cast<std::uint64_t>(clock_.wall().count() / 1000) << 16, ++made_}};
      record.where = where;
      record.name = "train";
      record.owner = "user/ada";
      record.spec = shared;
      record.array = array;
      record.array_index = i;
      record.submitted_us = clock_.wall().count();
      ids_.push_back(record.id);
      records.push_back(std::move(record));
    }
    book_.insert(records);
    dispatcher_->tell(Submitted{std::move(records)});
  }

  // No more faults; everything that can end does.
  void calm_down() {
    for (auto& [name, executor] : executors_) {
      FakeFaults none;
      executor->set_faults(none);
      for (const auto& node : executor->nodes()) executor->set_node(node.name, true);
    }
    book_.fail_writes(0);
    const auto until = clock_.wall() + hours(24 * 7);
    bool cancelled = false;
    while (clock_.wall() < until && violations().empty()) {
      live_for(seconds(30));
      std::size_t placed = 0;
      for (const auto& entry : book_.all()) placed += is_placed(entry.second.first.life.phase);
      const bool idle = dispatcher_->live() == 0 && late_.empty();
      if (idle) break;
      if (placed == 0 && !cancelled && clock_.wall() > until - hours(24 * 6)) {
        for (const auto& record : book_.live()) {
          book_.wish({record.id, "cancel", "user/ada"});
          dispatcher_->tell(Wished{{record.id, "cancel", "user/ada"}});
        }
        cancelled = true;
      }
      if (placed == 0) clock_.advance(minutes(30));
    }
    live_for(seconds(60));  // what was said twice, and what is still to be forgotten
    for (const auto& [name, executor] : executors_) {
      if (executor->known() != 0)
        violations_.push_back(fmt::format("{} attempts are not forgotten", executor->known()));
    }
    if (dispatcher_->live() != 0) violations_.push_back(fmt::format("{} jobs never ended", dispatcher_->live()));
    if (dispatcher_->state().pending_count() + dispatcher_->state().running_count() != 0)
      violations_.push_back("the state holds jobs that are no more");
  }

  sys::SimClock clock_;
  sys::SimRandom random_;
  Metrics metrics_;
  MemoryBook book_;
  std::map<std::string, std::unique_ptr<FakeExecutor>> executors_;
  const std::vector<std::pair<std::string, std::string>> nodes_{
      {"local", "a1"}, {"local", "a2"}, {"local", "a3"}, {"far", "b1"}, {"far", "b2"}};
  SimHands hands_{*this};
  std::multimap<Micros, News> late_;
  std::unique_ptr<Dispatcher> dispatcher_;
  bool loaded_ = false;
  std::vector<JobId> ids_;
  std::uint64_t made_ = 0;
  std::size_t restarts_ = 0, clouds_ = 0, given_back_ = 0;
  std::vector<std::string> violations_;
};

// Which phase may follow which.
bool may_follow(Phase before, Phase after) {
  switch (after) {
    case Phase::pending:
      return is_placed(before) || has_ended(before) || before == Phase::pending;
    case Phase::admitted:
      return before == Phase::pending;
    case Phase::starting:
      return before == Phase::admitted || before == Phase::starting;
    case Phase::running:
      return before == Phase::starting || before == Phase::running;
    case Phase::checkpointing:
      return is_placed(before);
    case Phase::finishing:
      return !has_ended(before);
    default:
      return !has_ended(before);
  }
}

void check_history(const World& world) {
  for (const auto& entry : world.book().all()) {
    const auto& [record, transitions] = entry.second;
    const auto id = record.id.str();
    EXPECT_TRUE(has_ended(record.life.phase))
        << id << " is " << name_of(record.life.phase) << ": " << json::serialize(encode(record.life)) << "\n"
        << json::serialize(encode(*record.spec)) << " of " << record.where.scope().str();
    EXPECT_FALSE(record.life.why.empty()) << id << " ended without a reason";
    if (record.life.phase == Phase::failed) {
      EXPECT_TRUE(record.life.end.has_value()) << id << " failed without saying how";
    }
    EXPECT_TRUE(record.life.places.empty()) << id << " still holds a place";
    for (std::size_t i = 1; i < transitions.size(); ++i) {
      EXPECT_TRUE(may_follow(transitions[i - 1].phase, transitions[i].phase))
          << id << ": " << name_of(transitions[i - 1].phase) << " -> " << name_of(transitions[i].phase);
      EXPECT_GE(transitions[i].epoch, transitions[i - 1].epoch) << id;
      EXPECT_GE(transitions[i].at_us, transitions[i - 1].at_us) << id;
    }
  }
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(Simulation, KeepsItsPromisesWhateverHappens) {
  log::set_sink([](log::Level, std::string_view, log::Fields) {}, log::Level::error);
  const auto only = from_environment("FALAJ_SEED", 0);
  const auto seeds = only ? only : from_environment("FALAJ_SEEDS", repeats(repeats(repeats(200))));
  std::size_t jobs = 0, starts = 0, restarts = 0, clouds = 0, given_back = 0, resizes = 0;
  std::map<std::string_view, std::size_t> ended;
  for (auto seed = only ? only : 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("FALAJ_SEED={}", seed));
    World world(seed);
    world.run(40);
    for (const auto& text : world.violations()) ADD_FAILURE() << text;
    check_history(world);
    jobs += world.book().all().size();
    starts += world.starts();
    restarts += world.restarts();
    clouds += world.clouds();
    given_back += world.given_back();
    for (const auto& entry : world.book().all()) {
      ++ended[name_of(entry.second.first.life.phase)];
      resizes += static_cast<std::size_t>(entry.second.first.life.resizes);
    }
    if (seed % 10 == 1) {
      World again(seed);
      again.run(40);
      EXPECT_EQ(again.fingerprint(), world.fingerprint()) << "the same seed did something else";
    }
  }
  fmt::print("{} jobs, {} attempts, {} restarts, {} nodes had and {} given back, {} jobs grew;", jobs, starts, restarts,
             clouds, given_back, resizes);
  if (seeds >= 100 && !only) {
    EXPECT_GT(clouds, 0u);
    EXPECT_GT(given_back, 0u);
    EXPECT_GT(resizes, 0u);
  }
  for (const auto& [phase, many] : ended) fmt::print(" {} {}", many, phase);
  fmt::print("\n");
}

}  // namespace
}  // namespace falaj::jobs
