// SPDX-License-Identifier: Apache-2.0
// Random clusters, queues and jobs, with nodes lost and jobs ended at random: whatever a plan says is carried out, and
// after every step what must always hold is checked against a count made from nothing but what runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "foundation/base/error.h"
#include "foundation/base/testing.h"
#include "lifecycle/schedule/book.h"
#include "lifecycle/schedule/plan.h"

namespace falaj::schedule {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), state_(rules()) {
    const int zones = 1 + below(3);
    nodes_ = 1 + below(12);
    for (int i = 0; i < nodes_; ++i) {
      Node node;
      node.name = fmt::format("n{}", i);
      node.zone = fmt::format("z{}", below(zones));
      node.capacity = {1000 * (1 + below(16)), (1 + below(64)) * kGiB, 100 * kGiB, 0};
      if (below(2) == 0) node.labels["fast"] = "yes";
      for (int g = below(3) == 0 ? 1 + below(4) : 0; g > 0; --g)
        node.devices.push_back({std::to_string(g), below(2) == 0 ? "a" : "b"});
      state_.set_node(std::move(node));
    }
    // Any hierarchy of five, with any bounds.
    for (const char* name : kQueues) {
      Queue queue;
      queue.name = name;
      if (!queues_.empty() && below(2) == 0) queue.parent = queues_[pick(queues_.size())].name;
      queue.weight = 1 + below(3);
      if (below(3) == 0) queue.limit = bounds(kUnbounded);
      if (below(2) == 0) queue.guaranteed = bounds(0);
      queue.borrows = !queue.guaranteed || below(4) != 0;
      queues_.push_back(std::move(queue));
    }
    for (std::size_t i = queues_.size(); i > 1; --i) std::swap(queues_[i - 1], queues_[pick(i)]);
    state_.set_queues(queues_);
    // Jobs go to all queues, or, as tenants' jobs do, only to those that no other is a part of.
    const bool leaves_only = below(2) == 0;
    for (const Queue& queue : queues_) {
      if (!leaves_only || std::ranges::none_of(queues_, [&](const Queue& q) { return q.parent == queue.name; }))
        used_.push_back(queue.name);
    }
    faults_ = below(2) == 0;
    policy_.promises = below(6);
    policy_.explains = true;
    policy_.preempt_cooldown = seconds(below(100));
    policy_.preemptions_max = below(4);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) step(true);
    // Everything that can run does in the end.
    for (int n = 0; n < nodes_; ++n) state_.set_up(n, true);
    faults_ = false;
    for (int i = 0; i < 2000 && (state_.running_count() > 0 || can_run()); ++i) step(false);
    EXPECT_EQ(state_.running_count(), 0u);
    EXPECT_FALSE(can_run());
  }

  std::uint64_t fingerprint() const { return fingerprint_; }
  int promises_compared() const { return kept_; }
  int entitled() const { return entitled_; }
  int taken_back() const { return taken_back_; }

 private:
  static constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  static constexpr const char* kQueues[] = {"a", "b", "c", "d", "e"};

  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  std::size_t pick(std::size_t limit) { return static_cast<std::size_t>(below(static_cast<int>(limit))); }
  // Of each resource: not spoken of, nothing at all, or a part of what a cluster has.
  Amounts bounds(std::int64_t gpus_absent) {
    const auto one = [&](std::int64_t absent, std::int64_t unit, int most) {
      const int kind = below(8);
      return kind < 4 ? absent : kind == 4 ? 0 : unit * (1 + below(most));
    };
    return {one(kUnbounded, 1000, 24), one(kUnbounded, kGiB, 64), kUnbounded, one(gpus_absent, 500, 8)};
  }
  StateRules rules() {
    StateRules rules;
    rules.order = below(2) == 0 ? Order::hastiest : Order::submitted;
    if (below(3) == 0) rules.patience = seconds(below(100));
    return rules;
  }

  void submit() {
    Job job;
    job.id = JobId{{1, ++last_}};
    job.queue = used_[pick(used_.size())];
    job.priority = below(3);
    job.preempts = below(10) == 0;
    job.preemptible = below(2) == 0;
    job.restartable = below(2) == 0;
    job.submitted = now_;
    job.tasks_min = below(4) == 0 ? 1 + below(12) : 1;
    job.tasks_max = job.tasks_min + (below(5) == 0 ? below(4) : 0);
    job.task = {500 * (1 + below(8)), (1 + below(8)) * kGiB, 0, 0};
    if (below(4) == 0) job.task.gpu_millis = below(2) == 0 ? 250 * (1 + below(3)) : 1000 * (1 + below(2));
    if (below(5) == 0) job.where.zones = {"z0"};
    if (below(6) == 0) job.where.labels["fast"] = "yes";
    if (below(6) == 0) job.where.gpu_type = "a";
    job.layout = below(3) == 0 ? Layout::spread : Layout::pack;
    if (below(8) != 0) job.limit = seconds(1 + below(300));
    job.grace = seconds(below(3) * 5);
    job.run.p50 = job.run.p90 = job.limit == kNever ? Micros(seconds(60)) : job.limit;
    job.run.haste = 1.0 / (1 + below(1000));
    all_.emplace(job.id, job);
    state_.add(std::move(job));
  }

  void step(bool submits) {
    now_ += seconds(1 + below(10));
    for (int i = submits ? below(4) : 0; i > 0; --i) submit();
    for (const JobId id : state_.running_ids()) {
      const Running& running = *state_.running(id);
      const bool over = running.job.limit != kNever && now_ >= running.started + running.job.limit;
      const bool gone = running.stopping && now_ >= running.stops_by;
      if (gone) {
        requeue(id);
      } else if (over || below(20) == 0) {
        if (running.checkpointed == Micros{0} && below(3) == 0) state_.checkpointed(id, now_);
        state_.remove(id, now_);
        ended_.insert(id);
      }
    }
    if (faults_ && below(15) == 0) fail_or_mend(below(nodes_));
    carry_out();
    check();
  }

  void requeue(JobId id) {
    Job job = all_.at(id);
    Job& kept = all_.at(id);
    if (state_.running(id)->stopping) ++kept.preemptions, kept.preempted = now_;
    job = kept;
    state_.requeue(job, now_);
  }

  void fail_or_mend(int node) {
    const bool up = state_.nodes()[static_cast<std::size_t>(node)].up;
    for (const JobId id : state_.running_ids()) {
      const auto& placement = state_.running(id)->placement;
      if (up && std::ranges::any_of(placement, [&](const Part& part) { return part.node == node; })) requeue(id);
    }
    state_.set_up(node, !up);
    promised_.clear();  // a lost node breaks promises, and what comes back may change them
  }

  void carry_out() {
    const Plan made = plan(state_, policy_, now_);
    const Plan again = plan(state_, policy_, now_);
    ASSERT_EQ(made.starts.size(), again.starts.size());
    for (std::size_t i = 0; i < made.starts.size(); ++i) {
      ASSERT_EQ(made.starts[i].job, again.starts[i].job);
      ASSERT_EQ(made.starts[i].placement, again.starts[i].placement);
    }
    check_guarantees(made);
    state_.note_promises(made);
    std::set<JobId> spoken_of;
    for (const JobId id : made.keeps) state_.keep(id);
    for (const Preempt& preempt : made.preempts) {
      const Running& running = *state_.running(preempt.job);
      if (running.trial) {
        requeue(preempt.job);
      } else {
        EXPECT_TRUE(running.job.preemptible);
        state_.stopping(preempt.job, now_ + running.job.grace);
      }
      mix(preempt.job.bits.low * 3);
    }
    for (const Start& start : made.starts) {
      EXPECT_TRUE(spoken_of.insert(start.job).second);
      if (start.trial) {
        Job job = *state_.pending(start.job);
        EXPECT_TRUE(job.restartable);
        ++job.trials;
        all_.at(start.job).trials = job.trials;
        state_.change(std::move(job));
      }
      state_.start(start, now_);  // throws when it does not fit: a plan's starts always do
      mix(start.job.bits.low * 7 + static_cast<std::uint64_t>(start.placement[0].node));
    }
    for (const Resize& resize : made.resizes) state_.resize(resize.job, resize.placement, now_);
    for (const Wait& wait : made.waits) EXPECT_TRUE(spoken_of.insert(wait.job).second) << wait.job.str();
    for (const JobId id : state_.pending_ids()) {
      EXPECT_TRUE(spoken_of.contains(id) ||
                  std::ranges::any_of(made.preempts, [&](const Preempt& p) { return p.job == id; }))
          << "nothing is said of " << id.bits.low;
    }
    check_promises(made);
  }

  bool is_guaranteed(const std::string& queue) const {
    const Book& book = state_.book();
    for (int at = book.queue_index.at(queue); at > 0; at = book.queues[at].parent) {
      if (book.queues[at].queue.guaranteed) return true;
    }
    return false;
  }

  // What each queue holds with all below it, counted from what runs.
  std::vector<Amounts> held() const {
    const Book& book = state_.book();
    std::vector<Amounts> out(book.queues.size());
    for (const JobId id : state_.running_ids()) {
      const Running& running = *state_.running(id);
      for (int at = book.queue_index.at(running.job.queue); at >= 0; at = book.queues[at].parent)
        out[at] = plus(out[at], times(running.job.task, tasks_of(running.placement)));
    }
    return out;
  }

  // No queue forbids it, and it stays within what every queue that it is in is guaranteed.
  bool is_entitled(const Pending& pending, const std::vector<Amounts>& held) const {
    const Book& book = state_.book();
    const Amounts more = times(pending.job.task, pending.job.tasks_min);
    for (int at = pending.queue; at > 0; at = book.queues[at].parent) {
      const Queue& queue = book.queues[at].queue;
      if (queue.limit && !may_add(held[at], more, *queue.limit)) return false;
      if (queue.guaranteed && !may_add(held[at], more, *queue.guaranteed)) return false;
    }
    return true;
  }

  // Preemptible, left alone for long enough, and in a queue that nothing is guaranteed to, while `pending` is in one
  // that is guaranteed some of what it asks for.
  bool is_guest(const RunningEntry& entry, const Pending& pending) const {
    const Book& book = state_.book();
    const Job& job = entry.running.job;
    if (!job.preemptible) return false;
    const int beyond = std::max(0, job.preemptions - policy_.preemptions_max + 1);
    const Micros cooldown = policy_.preempt_cooldown * (1 << beyond);
    if (job.preemptions > 0 && std::max(job.preempted, entry.running.started) + cooldown > now_) return false;
    std::set<int> around{0};
    for (int at = entry.queue; at > 0; at = book.queues[at].parent) around.insert(at);
    const Amounts more = times(pending.job.task, pending.job.tasks_min);
    bool granted = false;
    int common = pending.queue;
    for (; !around.contains(common); common = book.queues[common].parent) {
      const auto& guaranteed = book.queues[common].queue.guaranteed;
      granted = granted || (guaranteed && is_about(*guaranteed, more));
    }
    for (int at = entry.queue; at != common; at = book.queues[at].parent) {
      if (book.queues[at].queue.guaranteed) return false;
    }
    return granted;
  }

  // One that fits into what its queue is guaranteed does not wait while guests hold what it needs: it starts, or they
  // are told to stop for it, unless this very plan gives that to another with such a right.
  void check_guarantees(const Plan& made) {
    const Book& book = state_.book();
    const std::vector<Amounts> held = this->held();
    std::set<JobId> served;
    for (const Start& start : made.starts) served.insert(start.job);
    for (const Wait& wait : made.waits) {
      if (wait.reason == Reason::displacing) served.insert(wait.job);
    }
    const bool others = std::ranges::any_of(served, [&](JobId id) {
      const Job& job = all_.at(id);
      return job.preempts || is_guaranteed(job.queue);
    });
    for (const JobId id : state_.pending_ids()) {
      const Pending& pending = book.pending.at(id);
      if (!is_guaranteed(pending.job.queue) || !is_entitled(pending, held)) continue;
      std::vector<Free> free = book.truly_free;
      bool guests = false;
      for (const auto& [job, entry] : book.running) {
        const bool guest = is_guest(entry, pending);
        if (!entry.running.trial && !entry.running.stopping && !guest) continue;
        guests = guests || guest;
        for (const Part& part : entry.running.placement)
          give_back(free[part.node], book.demand(entry.ask, part.node), part);
      }
      int fit = 0;
      for (int node = 0; guests && node < nodes_; ++node) {
        if (!book.nodes[node].up || !book.eligible(pending.ask, node)) continue;
        fit += fits(free[node], book.demand(pending.ask, node), pending.job.tasks_min);
      }
      if (fit < pending.job.tasks_min) continue;
      ++entitled_;
      taken_back_ += served.contains(id) ? 1 : 0;
      EXPECT_TRUE(served.contains(id) || others)
          << id.bits.low << " waits for what is guaranteed to " << pending.job.queue;
    }
  }

  // What was started leaves each promise as it was made: with everything that runs now at its longest, the job still
  // starts by then. And a firm promise only moves earlier, unless a node was lost or something urgent came: a job that
  // displaces others, or a queue that takes what it is guaranteed.
  void check_promises(const Plan& made) {
    if (!all_limited()) return promised_.clear();  // a guess of how long something runs keeps no promise
    const auto leaves = [&](JobId id) { return state_.running(id)->stopping; };  // it may be gone any moment
    for (const Promised& promised : made.promised) {
      if (std::ranges::any_of(state_.running_ids(), leaves)) break;
      EXPECT_LE(earliest_start(state_, all_.at(promised.job), now_), promised.start) << promised.job.bits.low;
    }
    const bool urgent = std::ranges::any_of(made.starts,
                                            [&](const Start& s) {
                                              const Job& job = all_.at(s.job);
                                              return job.preempts || is_guaranteed(job.queue);
                                            }) ||
                        !made.preempts.empty();
    if (urgent || std::ranges::any_of(made.waits, [](const Wait& w) { return w.reason == Reason::displacing; })) {
      promised_.clear();
    }
    for (const Wait& wait : made.waits) {  // while its queue may hold no more nothing is promised
      if (wait.reason == Reason::limit || wait.reason == Reason::guarantee) promised_.erase(wait.job);
    }
    for (const Promised& promised : made.promised) {
      if (!promised.firm || all_.at(promised.job).limit == kNever) continue;
      const auto known = promised_.find(promised.job);
      if (known != promised_.end()) {
        EXPECT_LE(promised.start, std::max(known->second, now_)) << promised.job.bits.low;
        ++kept_;
      }
      promised_[promised.job] = promised.start;
    }
  }

  bool all_limited() const {
    return std::ranges::none_of(state_.running_ids(),
                                [&](JobId id) { return state_.running(id)->job.limit == kNever; });
  }

  bool can_run() const {
    Policy policy = policy_;
    policy.explains = true;
    const Plan made = plan(state_, policy, now_ + std::chrono::hours(24));
    return std::ranges::any_of(made.waits,
                               [](const Wait& w) { return w.reason == Reason::resources && w.reserved != kNever; }) ||
           !made.starts.empty();
  }

  void check() {
    std::map<int, Amounts> used;
    std::map<std::pair<int, int>, int> device;
    for (const JobId id : state_.running_ids()) {
      const Running& running = *state_.running(id);
      const Job& job = running.job;
      ASSERT_FALSE(ended_.contains(id));
      const int tasks = tasks_of(running.placement);
      EXPECT_GE(tasks, job.tasks_min);
      EXPECT_LE(tasks, job.tasks_max);
      for (const Part& part : running.placement) {
        const Node& node = state_.nodes()[static_cast<std::size_t>(part.node)];
        EXPECT_TRUE(node.up);
        if (!job.where.zones.empty()) {
          EXPECT_EQ(node.zone, job.where.zones[0]);
        }
        if (!job.where.labels.empty()) {
          EXPECT_TRUE(node.labels.contains("fast"));
        }
        used[part.node].cpu_millis += job.task.cpu_millis * part.tasks;
        used[part.node].memory_bytes += job.task.memory_bytes * part.tasks;
        const std::int64_t each = std::min<std::int64_t>(job.task.gpu_millis, 1000);
        EXPECT_EQ(static_cast<std::int64_t>(part.devices.size()) * each, job.task.gpu_millis * part.tasks);
        for (const int d : part.devices) {
          device[{part.node, d}] += static_cast<int>(each);
          if (!job.where.gpu_type.empty()) {
            EXPECT_EQ(node.devices[static_cast<std::size_t>(d)].type, job.where.gpu_type);
          }
        }
      }
    }
    for (const auto& [node, amounts] : used) {
      const Amounts& all = state_.nodes()[static_cast<std::size_t>(node)].capacity;
      EXPECT_LE(amounts.cpu_millis, all.cpu_millis);
      EXPECT_LE(amounts.memory_bytes, all.memory_bytes);
      EXPECT_EQ(state_.free_of(node).cpu_millis, all.cpu_millis - amounts.cpu_millis);
    }
    for (const auto& [at, millis] : device) EXPECT_LE(millis, 1000);
    const std::vector<Amounts> held = this->held();
    for (const QueueEntry& entry : state_.book().queues) {
      const auto index = static_cast<std::size_t>(&entry - state_.book().queues.data());
      EXPECT_EQ(entry.held, held[index]) << entry.queue.name;
      const auto keeps = [&](const Amounts& most) {
        return held[index].cpu_millis <= most.cpu_millis && held[index].memory_bytes <= most.memory_bytes &&
               held[index].disk_bytes <= most.disk_bytes && held[index].gpu_millis <= most.gpu_millis;
      };
      EXPECT_TRUE(!entry.queue.limit || keeps(*entry.queue.limit)) << entry.queue.name;
      EXPECT_TRUE(entry.queue.borrows || keeps(*entry.queue.guaranteed)) << entry.queue.name;
    }
    EXPECT_EQ(state_.pending_count() + state_.running_count() + ended_.size(), all_.size());  // none lost
  }

  void mix(std::uint64_t value) { fingerprint_ = (fingerprint_ ^ value) * 0x9e3779b97f4a7c15ULL; }

  std::mt19937_64 random_;
  State state_;
  Policy policy_;
  bool faults_ = false;
  std::vector<Queue> queues_;
  std::vector<std::string> used_;  // those that jobs are submitted to
  int entitled_ = 0, taken_back_ = 0;
  int nodes_ = 0;
  int kept_ = 0;
  Micros now_ = std::chrono::hours(100);
  std::uint64_t last_ = 0, fingerprint_ = 0;
  std::map<JobId, Job> all_;
  std::set<JobId> ended_;
  std::map<JobId, Micros> promised_;
};

TEST(PlanProperties, HoldInRandomWorlds) {
  const char* asked = std::getenv("FALAJ_SEEDS");  // for more than fit into every run
  const int worlds = asked != nullptr ? std::atoi(asked) : repeats(repeats(300));
  int promises_compared = 0, entitled = 0, taken_back = 0;
  for (int seed = 1; seed <= worlds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    World world(static_cast<std::uint64_t>(seed));
    world.run(40);
    if (testing::Test::HasFailure()) return;
    promises_compared += world.promises_compared();
    entitled += world.entitled();
    taken_back += world.taken_back();
    if (seed % 10 == 0) {
      World twin(static_cast<std::uint64_t>(seed));
      twin.run(40);
      ASSERT_EQ(world.fingerprint(), twin.fingerprint());
    }
  }
  EXPECT_GT(promises_compared, worlds);  // firm promises that the next plan was held to
  EXPECT_GT(entitled, worlds / 2);       // jobs whose right was looked into
  EXPECT_GT(taken_back, entitled / 3);   // the others were held by a cooldown, or had ended
}

}  // namespace
}  // namespace falaj::schedule
