// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/testing.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::jobs {

using execute::Ending;
using execute::Micros;
using execute::Reason;

namespace {

std::uint64_t mixed(std::uint64_t hash, std::string_view text) {
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

std::string_view job_of_attempt(std::string_view attempt) { return attempt.substr(0, attempt.find('.')); }

}  // namespace

FakeExecutor::FakeExecutor(const sys::Clock& clock, std::uint64_t seed, std::vector<execute::Node> nodes,
                           FakeFaults faults)
    : clock_(clock),
      seed_(seed),
      random_(seed),
      faults_(faults),
      nodes_(std::move(nodes)),
      least_(std::chrono::seconds(1)),
      most_(std::chrono::seconds(60)) {}

bool FakeExecutor::happens(double probability) {
  return probability > 0 && static_cast<double>(random_.below(1'000'000)) < probability * 1e6;
}

std::vector<execute::Node> FakeExecutor::nodes() {
  Lock lock(mu_);
  return nodes_;
}

void FakeExecutor::start(const execute::Launch& launch) {
  Lock lock(mu_);
  settle();
  if (happens(faults_.start_lost)) throw Error(Code::unavailable, "the executor did not hear");
  if (!attempts_.contains(launch.attempt)) {
    Attempt attempt;
    attempt.launch = launch;
    attempt.started = clock_.wall();
    sys::SimRandom fate(mixed(seed_, launch.attempt));
    const auto draw = [&](double p) { return static_cast<double>(fate.below(1'000'000)) < p * 1e6; };
    attempt.ends =
        attempt.started + least_ +
        Micros(static_cast<std::int64_t>(fate.below(static_cast<std::uint64_t>((most_ - least_).count()) + 1)));
    attempt.checkpoints = draw(faults_.saves);
    if (draw(faults_.saves_unasked)) {
      attempt.by_itself.reason = Reason::checkpointed;
      attempt.by_itself.exit_code = 75;
    } else if (draw(faults_.fails)) {
      attempt.by_itself.exit_code = 1;
    } else if (draw(faults_.crashes)) {
      attempt.by_itself.reason = Reason::signalled;
      attempt.by_itself.signal = 11;
    }
    if (launch.isolation_min > apart_) {
      attempt.ends = attempt.started;
      attempt.by_itself.reason = Reason::not_started;
      attempt.by_itself.message = fmt::format("isolation here is {} at most, and {} is asked for",
                                              execute::name_of(apart_), execute::name_of(launch.isolation_min));
    }
    check_room(attempt);
    starts_ += 1;
    launches_[std::string(job_of_attempt(launch.attempt))] = launch.attempt;
    attempts_.emplace(launch.attempt, std::move(attempt));
    version_ += 1;
    changed_.notify_all();
  }
  if (happens(faults_.answer_lost)) throw Error(Code::unavailable, "the executor's answer was lost");
}

void FakeExecutor::keep_apart(execute::Isolation most) {
  Lock lock(mu_);
  apart_ = most;
}

void FakeExecutor::check_room(const Attempt& attempt) {
  const auto& launch = attempt.launch;
  if (launch.tasks.empty()) violations_.push_back(launch.attempt + " has no tasks");
  std::map<std::string, execute::Limits> used;
  std::map<std::string, std::map<std::string, std::int64_t>> gpus;
  const auto count = [&](const execute::Launch& one) {
    for (const auto& task : one.tasks) {
      auto& of = used[task.node];
      of.cpu_millis += one.limits.cpu_millis;
      of.memory_bytes += one.limits.memory_bytes;
      of.disk_bytes += one.limits.disk_bytes;
      for (const auto& gpu : task.gpus) gpus[task.node][gpu] += one.gpus_per_task > 0 ? 1000 : 1;
    }
  };
  count(launch);
  for (const auto& [name, other] : attempts_) {
    if (other.ending) continue;
    count(other.launch);
    if (job_of_attempt(name) == job_of_attempt(launch.attempt))
      violations_.push_back(fmt::format("{} and {} run at once", name, launch.attempt));
  }
  for (const auto& task : launch.tasks) {
    const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.name == task.node; });
    if (node == nodes_.end()) {
      violations_.push_back(fmt::format("{} is on {}, which is no node", launch.attempt, task.node));
      continue;
    }
    const auto& of = used[task.node];
    if (of.cpu_millis > node->cpu_millis || of.memory_bytes > node->memory_bytes || of.disk_bytes > node->disk_bytes)
      violations_.push_back(fmt::format("{} is given more than it has, with {}", task.node, launch.attempt));
    for (const auto& [gpu, shares] : gpus[task.node])
      if (shares > 1000) violations_.push_back(fmt::format("GPU {} of {} is given twice", gpu, task.node));
  }
}

void FakeExecutor::end(Attempt& attempt, Ending ending) {
  if (ending.at == Micros(0)) ending.at = clock_.wall();
  ending.used.cpu = ending.at - attempt.started;
  attempt.ending = std::move(ending);
  version_ += 1;
}

void FakeExecutor::settle() {
  const auto now = clock_.wall();
  for (auto& [name, attempt] : attempts_) {
    if (attempt.ending) continue;
    const auto& launch = attempt.launch;
    if (launch.time_limit > Micros(0) && attempt.started + launch.time_limit <= now &&
        attempt.started + launch.time_limit < attempt.ends) {
      Ending ending;
      ending.reason = Reason::time_limit;
      ending.at = attempt.started + launch.time_limit;
      end(attempt, ending);
    } else if (attempt.ends <= now && (!attempt.told_to_stop || attempt.ends <= attempt.stop_at)) {
      auto ending = attempt.by_itself;
      ending.at = attempt.ends;
      end(attempt, ending);
    } else if (attempt.told_to_stop && attempt.stop_at <= now) {
      Ending ending;
      ending.reason = attempt.checkpoints ? Reason::checkpointed : Reason::stopped;
      ending.exit_code = attempt.checkpoints ? 75 : 0;
      ending.at = attempt.stop_at;
      end(attempt, ending);
    }
  }
}

void FakeExecutor::stop(std::string_view name, Micros grace) {
  Lock lock(mu_);
  settle();
  if (happens(faults_.stop_lost)) return;
  const auto found = attempts_.find(name);
  if (found == attempts_.end() || found->second.ending || found->second.told_to_stop) return;
  found->second.told_to_stop = true;
  found->second.stop_at =
      clock_.wall() + Micros(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(grace.count()) + 1)));
}

std::vector<execute::Report> FakeExecutor::reports() {
  std::vector<execute::Report> out;
  for (const auto& [name, attempt] : attempts_) {
    execute::Report report;
    report.attempt = name;
    report.phase = attempt.ending ? execute::Phase::ended : execute::Phase::running;
    report.started = attempt.started;
    report.isolation = execute::Isolation::isolated;
    report.ending = attempt.ending;
    out.push_back(std::move(report));
  }
  return out;
}

std::vector<execute::Report> FakeExecutor::poll(std::uint64_t& seen, Micros at_most) {
  constexpr Micros kLongest = std::chrono::milliseconds(10);  // the clock moves without telling
  Lock lock(mu_);
  settle();
  if (at_most > Micros(0) && seen == version_) lock.wait_for(changed_, std::min(at_most, kLongest));
  settle();
  if (happens(faults_.poll_fails)) throw Error(Code::unavailable, "the executor does not answer");
  if (happens(faults_.poll_stale)) return last_;
  seen = version_;
  return last_ = reports();
}

execute::LogPage FakeExecutor::logs(std::string_view name, int rank, std::int64_t offset, std::int64_t bytes_max) {
  Lock lock(mu_);
  settle();
  const auto found = attempts_.find(name);
  if (found == attempts_.end()) throw Error(Code::not_found, fmt::format("no attempt {}", name));
  const auto all = fmt::format("{} task {}\n", name, rank);
  execute::LogPage page;
  if (offset < static_cast<std::int64_t>(all.size()))
    page.text = all.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes_max));
  page.next_offset = offset + static_cast<std::int64_t>(page.text.size());
  page.ended = found->second.ending.has_value();
  return page;
}

void FakeExecutor::forget(std::string_view name) {
  Lock lock(mu_);
  if (happens(faults_.forget_lost)) return;
  const auto found = attempts_.find(name);
  if (found == attempts_.end()) return;
  if (!found->second.ending) {
    violations_.push_back(fmt::format("{} is forgotten while it runs", name));
    return;
  }
  attempts_.erase(found);
  version_ += 1;
}

void FakeExecutor::drop_logs(std::string_view) {}

std::optional<execute::Used> FakeExecutor::used(std::string_view name) {
  Lock lock(mu_);
  const auto found = attempts_.find(name);
  if (found == attempts_.end()) return std::nullopt;
  auto& used = used_[std::string(name)];
  const auto ran = static_cast<double>((clock_.wall() - found->second.started).count());
  used.cpu = std::max(used.cpu, Micros(static_cast<std::int64_t>(busy_ * ran)));
  return used;
}

void FakeExecutor::set_busy(double part) {
  Lock lock(mu_);
  busy_ = part;
}

void FakeExecutor::run_for(Micros least, Micros most) {
  Lock lock(mu_);
  least_ = least;
  most_ = most;
}

void FakeExecutor::lose_node(const std::string& name) {
  Lock lock(mu_);
  settle();
  for (auto& entry : attempts_) {
    auto& attempt = entry.second;
    if (attempt.ending || std::none_of(attempt.launch.tasks.begin(), attempt.launch.tasks.end(),
                                       [&](const auto& task) { return task.node == name; }))
      continue;
    Ending ending;
    ending.reason = Reason::node_lost;
    ending.message = name;
    end(attempt, ending);
  }
  for (auto& node : nodes_)
    if (node.name == name) node.up = false;
  version_ += 1;
}

void FakeExecutor::set_node(const std::string& name, bool up) {
  Lock lock(mu_);
  for (auto& node : nodes_)
    if (node.name == name) node.up = up;
}

void FakeExecutor::add_node(execute::Node node) {
  Lock lock(mu_);
  nodes_.push_back(std::move(node));
  version_ += 1;
}

void FakeExecutor::remove_node(const std::string& name) {
  Lock lock(mu_);
  settle();
  for (const auto& [attempt, of] : attempts_)
    if (!of.ending && std::any_of(of.launch.tasks.begin(), of.launch.tasks.end(),
                                  [&](const auto& task) { return task.node == name; }))
      violations_.push_back(fmt::format("{} is given back while {} runs on it", name, attempt));
  std::erase_if(nodes_, [&](const auto& node) { return node.name == name; });
  version_ += 1;
}

void FakeExecutor::set_faults(FakeFaults faults) {
  Lock lock(mu_);
  faults_ = faults;
}

std::vector<std::string> FakeExecutor::violations() const {
  Lock lock(mu_);
  return violations_;
}
std::size_t FakeExecutor::running() const {
  Lock lock(mu_);
  return static_cast<std::size_t>(
      std::count_if(attempts_.begin(), attempts_.end(), [](const auto& entry) { return !entry.second.ending; }));
}
std::size_t FakeExecutor::known() const {
  Lock lock(mu_);
  return attempts_.size();
}
std::size_t FakeExecutor::starts() const {
  Lock lock(mu_);
  return starts_;
}
std::optional<Micros> FakeExecutor::next_change() const {
  Lock lock(mu_);
  std::optional<Micros> out;
  for (const auto& [name, attempt] : attempts_) {
    if (attempt.ending) continue;
    auto at = attempt.told_to_stop ? std::min(attempt.stop_at, attempt.ends) : attempt.ends;
    if (attempt.launch.time_limit > Micros(0)) at = std::min(at, attempt.started + attempt.launch.time_limit);
    if (!out || at < *out) out = at;
  }
  return out;
}
std::string FakeExecutor::last_launch_of(const std::string& job) const {
  Lock lock(mu_);
  const auto found = launches_.find(job);
  return found == launches_.end() ? "" : found->second;
}

// ---- the book

void MemoryBook::insert(const std::vector<Record>& records) {
  for (const auto& record : records)
    jobs_[record.id] = {record, {{0, record.submitted_us, 0, record.life.phase, record.life.why}}};
}

void MemoryBook::write(std::span<Change> changes) {
  if (failing_ > 0) {
    --failing_;
    throw Error(Code::unavailable, "the database does not answer");
  }
  for (auto& change : changes) {
    auto& [record, transitions] = jobs_.at(change.record->id);
    const auto text = json::serialize(encode(change.record->life));
    record.life = decode<Life>(parse_json(text), "a life");
    fingerprint_ = mixed(mixed(fingerprint_, change.record->id.str()), text);
    for (auto transition : change.transitions) {
      transition.number = static_cast<std::int64_t>(transitions.size());
      transitions.push_back(std::move(transition));
    }
    if (const auto wish = wishes_.find(change.record->id); wish != wishes_.end() && wish->second.what == change.granted)
      wishes_.erase(wish);
    change.record->transitions += static_cast<std::int64_t>(change.transitions.size());
  }
}

void MemoryBook::write_pools(std::span<const PoolChange> changes) {
  if (failing_ > 0) {
    --failing_;
    throw Error(Code::unavailable, "the database does not answer");
  }
  for (const auto& change : changes) {
    const auto text = json::serialize(encode(change.life));
    pools_[change.pool] = decode<PoolLife>(parse_json(text), "a pool");
    fingerprint_ = mixed(mixed(fingerprint_, change.pool), text);
    for (const auto& event : change.events) pool_events_.emplace_back(change.pool, event);
  }
}

std::vector<Record> MemoryBook::live() {
  std::vector<Record> out;
  for (const auto& entry : jobs_)
    if (!has_ended(entry.second.first.life.phase)) out.push_back(entry.second.first);
  return out;
}

std::vector<Wish> MemoryBook::wishes() {
  std::vector<Wish> out;
  for (const auto& entry : wishes_) out.push_back(entry.second);
  return out;
}

std::optional<Record> MemoryBook::find(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second.first);
}

std::optional<Book::Outcome> MemoryBook::outcome(const std::string& id) {
  Outcome out;
  for (const auto& entry : jobs_) {
    const auto& record = entry.second.first;
    if (record.id.str() != id && record.array != id) continue;
    out.members += 1;
    out.live += !has_ended(record.life.phase);
    out.succeeded += record.life.phase == Phase::succeeded;
  }
  return out.members > 0 ? std::optional(out) : std::nullopt;
}

}  // namespace falaj::jobs
