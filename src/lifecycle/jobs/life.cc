// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/life.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::jobs {
namespace {

constexpr std::pair<Phase, std::string_view> kPhases[] = {{Phase::pending, "pending"},
                                                          {Phase::admitted, "admitted"},
                                                          {Phase::starting, "starting"},
                                                          {Phase::running, "running"},
                                                          {Phase::checkpointing, "checkpointing"},
                                                          {Phase::finishing, "finishing"},
                                                          {Phase::succeeded, "succeeded"},
                                                          {Phase::failed, "failed"},
                                                          {Phase::cancelled, "cancelled"}};

// One that ends with 75 sooner than this after it began made no progress worth the start.
constexpr std::int64_t kHastyUs = 10'000'000, kHastyWaitUs = 1'000'000, kHastyWaitMaxUs = 600'000'000;

// Messages of other systems are kept up to so many bytes.
constexpr std::size_t kMessageBytesMax = 4096;

std::int64_t doubled(std::int64_t first, std::int64_t times, std::int64_t most) {
  for (; times > 0 && first < most; --times) first *= 2;
  return std::min(first, most);
}

std::string in_words(const End& end) {
  const auto of_rank = end.rank > 0 ? fmt::format(" (task {})", end.rank) : "";
  const auto more = end.message.empty() ? "" : ": " + end.message;
  if (end.reason == "finished") return fmt::format("ended with {}{}", end.exit_code, of_rank);
  if (end.reason == "signalled") return fmt::format("killed by signal {}{}", end.signal, of_rank);
  if (end.reason == "out_of_memory") return fmt::format("took more memory than it may{}", of_rank);
  if (end.reason == "time_limit") return "ran for as long as it may";
  if (end.reason == "node_lost") return "its node was lost" + more;
  if (end.reason == "not_started") return "could not be started" + more;
  if (end.reason == "checkpointed") return "ended with 75: to be started again";
  return end.reason + more;
}

// One step of `next`, with what it changes at hand.
class Step {
 public:
  Step(const JobSpec& spec, const Life& life, std::int64_t now_us) : spec_(spec), now_us_(now_us) { out_.life = life; }

  Next take() { return std::move(out_); }

  void operator()(const Released&) {
    if (life().phase != Phase::pending) return;
    become(Phase::admitted, "nothing but room is missing");
  }
  void operator()(const Doomed& doomed) {
    if (life().phase != Phase::pending && life().phase != Phase::admitted) return;
    life().end = End{};
    life().end->reason = "dependency";
    life().end->message = doomed.message;
    life().end->at_us = now_us_;
    settle(Phase::failed, doomed.message);
  }
  void operator()(const Placed& placed) {
    if (life().phase != Phase::admitted) return;
    auto& l = life();
    l.epoch += 1;
    l.executor = placed.executor;
    l.places = placed.places;
    l.trial = placed.trial;
    l.placed_us = now_us_;
    l.started_us = l.idle_since_us = 0;
    l.isolation.clear();
    l.external_id.clear();
    l.stop.clear();
    l.end.reset();
    become(Phase::starting, fmt::format("attempt {}", l.epoch));
    out_.effects.push_back(Effect::start);
  }
  void operator()(const Acknowledged& done) {
    if (!is_placed(life().phase)) return;
    if (!done.run_id.empty() && life().run_id != done.run_id) {
      life().run_id = done.run_id;
      out_.changed = true;
    }
    // Told to stop before the executor knew of it: it would not have heard.
    if (!life().stop.empty()) out_.effects.push_back(Effect::stop);
  }
  void operator()(const Refused& refused) {
    if (life().phase != Phase::starting && life().phase != Phase::checkpointing) return;
    execute::Ending ending;
    ending.reason = execute::Reason::not_started;
    ending.message = refused.message;
    ending.at = schedule::Micros(now_us_);
    ended(ending, Effect::stop);
  }
  void operator()(const Reported& reported) {
    if (!is_placed(life().phase)) return;
    const auto& report = reported.report;
    auto& l = life();
    if (l.run_id.empty() && !reported.run_id.empty()) {
      l.run_id = reported.run_id;
      out_.changed = true;
    }
    if (report.phase != execute::Phase::starting) {
      l.isolation = std::string(execute::name_of(report.isolation));
      l.external_id = report.external_id;
      if (l.started_us == 0 && report.started.count() > 0) l.started_us = report.started.count();
    }
    if (report.phase == execute::Phase::ended && report.ending) return ended(*report.ending, Effect::forget);
    if (report.phase == execute::Phase::running && l.phase == Phase::starting)
      become(Phase::running, fmt::format("on {}", places_in_words()));
  }
  void operator()(const CancelAsked& asked) {
    auto& l = life();
    if (has_ended(l.phase) || l.phase == Phase::finishing || l.stop == kStopCancel) return;
    if (!is_placed(l.phase)) return settle(Phase::cancelled, "cancelled by " + asked.by);
    tell_to_stop(kStopCancel, "cancelled by " + asked.by);
  }
  void operator()(const RequeueAsked& asked) {
    auto& l = life();
    if (has_ended(l.phase)) {
      l.failures = l.losses = l.hasty = 0;
      l.ended_us = l.not_before_us = 0;
      l.end.reset();
      return become(Phase::pending, "started again by " + asked.by);
    }
    if (is_placed(l.phase) && l.stop.empty()) {
      become(Phase::checkpointing, "stopped to be started again by " + asked.by);
      tell_to_stop(kStopRequeue, l.why);
    }
  }
  void operator()(const Displaced& displaced) {
    auto& l = life();
    if ((l.phase != Phase::running && l.phase != Phase::starting) || !l.stop.empty()) return;
    become(Phase::checkpointing, "stopped for " + displaced.in_favour_of);
    tell_to_stop(kStopPreempt, l.why);
  }
  void operator()(const Resized& resized) {
    auto& l = life();
    if (l.phase != Phase::running || !l.stop.empty() || l.trial) return;
    become(Phase::checkpointing, fmt::format("stopped to go on with {} tasks", resized.tasks));
    tell_to_stop(kStopResize, l.why);
  }
  void operator()(const Used& used) {
    auto& l = life();
    if (l.phase != Phase::running || l.idle_since_us == used.idle_since_us) return;
    l.idle_since_us = used.idle_since_us;
    become(Phase::running, used.why);
  }
  void operator()(const DeadlinePassed&) {
    auto& l = life();
    if (has_ended(l.phase) || l.phase == Phase::finishing || l.stop == kStopDeadline || l.stop == kStopCancel) return;
    if (is_placed(l.phase)) return tell_to_stop(kStopDeadline, "its deadline passed");
    l.end = End{};
    l.end->reason = "deadline";
    l.end->message = "its deadline passed before it could run";
    l.end->at_us = now_us_;
    settle(Phase::failed, l.end->message);
  }
  void operator()(const Kept& kept) {
    auto& l = life();
    if (l.phase != Phase::finishing) return;
    const auto verdict = parse_phase(l.verdict);
    CHECK(verdict && has_ended(*verdict), "a job that finishes has a verdict");
    l.verdict.clear();
    auto why = l.end ? in_words(*l.end) : l.why;
    if (!kept.problem.empty()) why += "; what it left could not be kept: " + kept.problem;
    conclude(*verdict, why);
  }

 private:
  Life& life() { return out_.life; }

  void become(Phase phase, std::string why) {
    life().phase = phase;
    life().why = std::move(why);
    out_.changed = true;
  }
  void tell_to_stop(std::string_view stop, std::string why) {
    life().stop = stop;
    life().why = std::move(why);
    out_.changed = true;
    out_.effects.push_back(Effect::stop);
  }
  std::string places_in_words() {
    std::string text;
    for (const auto& place : life().places) text += (text.empty() ? "" : ", ") + place.node;
    return text;
  }

  // It runs no more and will not again. What it left is kept first.
  void settle(Phase verdict, std::string why) {
    if (!life().run_id.empty()) {
      life().verdict = name_of(verdict);
      become(Phase::finishing, std::move(why));
      out_.effects.push_back(Effect::keep);
      return;
    }
    if (life().epoch > 0) out_.effects.push_back(Effect::tidy);
    conclude(verdict, std::move(why));
  }
  void conclude(Phase phase, std::string why) {
    life().ended_us = now_us_;
    life().stop.clear();
    life().places.clear();
    become(phase, std::move(why));
  }
  void again(std::int64_t wait_us, std::string why) {
    life().stop.clear();
    life().places.clear();
    life().not_before_us = wait_us > 0 ? now_us_ + wait_us : 0;
    become(Phase::pending, std::move(why));
  }

  void ended(const execute::Ending& ending, Effect then) {
    auto& l = life();
    End end;
    end.reason = std::string(execute::name_of(ending.reason));
    end.exit_code = ending.exit_code;
    end.signal = ending.signal;
    end.rank = ending.rank;
    end.message = is_utf8(ending.message) ? ending.message.substr(0, kMessageBytesMax) : "(not text)";
    end.at_us = ending.at.count();
    end.cpu_us = ending.used.cpu.count();
    end.memory_peak_bytes = ending.used.memory_peak_bytes;
    l.end = end;
    const auto began = l.started_us > 0 ? l.started_us : l.placed_us;
    out_.spent = Spent{l.epoch,
                       began,
                       std::max(began, end.at_us > 0 ? end.at_us : now_us_),
                       l.places,
                       l.executor,
                       end.reason,
                       end.cpu_us,
                       end.memory_peak_bytes,
                       0,
                       0,
                       l.checkpointed_us};
    out_.effects.push_back(then);
    judge(ending, end);
  }

  // What becomes of a job whose attempt has ended.
  void judge(const execute::Ending& ending, const End& end) {
    using execute::Reason;
    auto& l = life();
    const auto words = in_words(end);
    // Done is done, even where it was told to stop a moment earlier.
    if (ending.reason == Reason::finished && ending.exit_code == 0) return settle(Phase::succeeded, words);
    if (l.stop == kStopCancel) return settle(Phase::cancelled, l.why);
    if (l.stop == kStopDeadline) {
      l.end->reason = "deadline";
      return settle(Phase::failed, "its deadline passed");
    }
    if (ending.reason == Reason::checkpointed) l.checkpointed_us = end.at_us;
    if (l.stop == kStopPreempt) {
      if (l.trial) {
        l.trials += 1;  // no loss of anything it was promised
      } else {
        l.preemptions += 1;
        l.preempted_us = now_us_;
      }
      return again(0, words);
    }
    if (l.stop == kStopResize) {
      l.resizes += 1;
      return again(0, words);
    }
    if (l.stop == kStopRequeue) return again(0, words);
    if (ending.reason == Reason::checkpointed) {
      const auto ran_us = end.at_us - (l.started_us > 0 ? l.started_us : l.placed_us);
      l.hasty = ran_us < kHastyUs ? l.hasty + 1 : 0;
      return again(l.hasty > 0 ? doubled(kHastyWaitUs, l.hasty - 1, kHastyWaitMaxUs) : 0, words);
    }
    if (ending.reason == Reason::node_lost || ending.reason == Reason::stopped) {  // by somebody else than us
      l.losses += 1;
      if (l.losses <= kLossesMax) return again(0, words);
      return settle(Phase::failed, fmt::format("{}, for the {}th time", words, l.losses));
    }
    const auto& never = spec_.retries.not_codes;
    const bool may_help =
        ending.reason == Reason::signalled || ending.reason == Reason::out_of_memory ||
        (ending.reason == Reason::finished && std::find(never.begin(), never.end(), ending.exit_code) == never.end());
    if (may_help && l.failures < spec_.retries.max) {
      l.failures += 1;
      const auto wait = backoff_us(spec_.retries, l.failures - 1);
      return again(wait, fmt::format("{}; retry {} of {}", words, l.failures, spec_.retries.max));
    }
    settle(Phase::failed, words);
  }

  const JobSpec& spec_;
  const std::int64_t now_us_;
  Next out_;
};

}  // namespace

std::string_view name_of(Phase phase) {
  for (const auto& [value, text] : kPhases)
    if (value == phase) return text;
  CHECK(false, "no such phase");
  return {};
}
std::optional<Phase> parse_phase(std::string_view text) {
  for (const auto& [value, name] : kPhases)
    if (name == text) return value;
  return std::nullopt;
}

void decode_one(Phase& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  std::string text;
  shape::decode_one(text, in, bounds, path, faults);
  if (const auto phase = parse_phase(text))
    out = *phase;
  else
    faults.push_back({path, fmt::format("no such phase: '{}'", text.substr(0, 40))});
}

Next next(const JobSpec& spec, const Life& life, const Event& event, std::int64_t now_us) {
  Step step(spec, life, now_us);
  std::visit(step, event);
  return step.take();
}

std::int64_t backoff_us(const RetrySpec& retries, std::int64_t failures) {
  return doubled(retries.backoff_us, failures, std::max(retries.backoff_us, retries.backoff_max_us));
}

std::string run_id_of(JobId job) { return fmt::format("{:016x}{:016x}", job.bits.high, job.bits.low); }

std::string attempt_name(JobId job, std::int64_t epoch) { return fmt::format("{}.{}", job.str(), epoch); }

std::optional<AttemptName> parse_attempt(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto epoch = parse_int(text.substr(dot + 1));
  if (!epoch || *epoch < 1) return std::nullopt;
  try {
    return AttemptName{JobId::parse(text.substr(0, dot)), *epoch};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace falaj::jobs
