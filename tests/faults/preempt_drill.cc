// SPDX-License-Identifier: Apache-2.0
// preempt_drill [--preemptions N] FALAJ_BINARY
//
// A job that counts steps and saves what it has done is stopped for urgent work again and again, on a node with room
// for one of them. Mostly it saves when it is told to stop; now and then it does not listen and is killed when its
// grace has passed, as a job that hangs would be; and now and then the server is killed with -9 in the middle. Every
// step it takes is in a ledger, so that afterwards it can be told
//   - that each attempt went on exactly where the last checkpoint was: nothing before it was lost or done twice,
//   - how many steps after a checkpoint were lost: none by attempts that ended with 75,
//   - that no two attempts ever ran at once: each holds a lock while it runs, and epochs only count up.

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLookUs = 3'000;
constexpr sys::Micros kPatience = std::chrono::seconds(60);
constexpr int kDeafEvery = 10;        // which attempts do not listen
constexpr int kServerDiesEvery = 25;  // at which preemptions
constexpr std::int64_t kSteps = 3;    // that an attempt takes at least before it is stopped

// Lines of the ledger: "begin ATTEMPT STEP", "step ATTEMPT STEP", "saved ATTEMPT STEP", "twice ATTEMPT".
constexpr std::string_view kCounter = R"(
cd "$FALAJ_CHECKPOINT_DIR" || exit 1
a=$FALAJ_ATTEMPT step=0 stop=
[ -f step ] && step=$(cat step)
exec 9>>lock
flock -n 9 || { echo "twice $a" >>ledger; exit 1; }
save() { echo $step >step.new && mv step.new step && echo "saved $a $step" >>ledger; }
if [ $((a % DEAF)) -eq 0 ]; then trap '' TERM; else trap 'stop=1' TERM; fi
echo "begin $a $step" >>ledger
while [ -z "$stop" ]; do
  step=$((step + 1))
  echo "step $a $step" >>ledger
  [ $((step % 5)) -eq 0 ] && save
  sleep 0.005
done
save
exit 75
)";

constexpr std::string_view kClasses = R"(
{apiVersion: falaj/v1, kind: PriorityClass, metadata: {name: urgent}, spec: {value: 100, preempts: true}}
---
{apiVersion: falaj/v1, kind: PriorityClass, metadata: {name: patient},
 spec: {value: 0, preemptCooldown: 0s, preemptionsMax: 1000000}}
)";

struct Found {
  std::int64_t attempts = 0, steps = 0, distinct = 0, lost = 0, lost_saved = 0;
};

// What the ledger says, given which attempts ended with 75; throws when it tells of something that must not be.
Found read_ledger(const std::string& text, const std::set<std::int64_t>& saved_attempts) {
  Found out;
  std::int64_t attempt = 0, saved = 0, step = 0;
  for (const auto line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto words = split(line, ' ');
    const auto number = [&](std::size_t i) { return i < words.size() ? parse_int(words[i]).value_or(-1) : -1; };
    const auto wrong = [&](std::string_view what) { throw Error(Code::corrupt, fmt::format("'{}': {}", line, what)); };
    if (words[0] == "twice") wrong("two attempts ran at once");
    if (words[0] == "begin") {
      if (number(1) <= attempt) wrong("an attempt that is not newer began");
      // Killed between saving and saying so, it begins where it saved.
      if (number(2) < saved || number(2) > step) wrong(fmt::format("the last checkpoint was at step {}", saved));
      saved = number(2);
      out.lost += step - saved;
      if (saved_attempts.contains(attempt)) out.lost_saved += step - saved;
      attempt = number(1);
      step = saved;
      out.attempts += 1;
      continue;
    }
    if (number(1) != attempt) wrong("an attempt of the past still runs");
    if (words[0] == "step") {
      if (number(2) != step + 1) wrong("a step was left out or done twice");
      step = number(2);
      out.steps += 1;
    } else if (words[0] == "saved") {
      if (number(2) != step) wrong("something else was saved than was done");
      saved = step;
    }
  }
  out.distinct = saved;
  return out;
}

class Drill {
 public:
  explicit Drill(std::string binary) {
    std::string pattern = (fs::temp_directory_path() / "falaj-preempt-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    program_ = std::make_unique<Program>(std::move(binary), data(), directory_ + "/log",
                                         std::vector<std::string>{"--set", "log_level=error", "--set", "jobs.cpus=1",
                                                                  "--set", "rates.calls_per_second=1000000"});
  }
  ~Drill() {
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run(std::int64_t preemptions) {
    call([&](client::ApiClient& api) {
      api.post("/v1/apply", {{"sources", {{{"file", "classes"}, {"text", kClasses}}}}});
    });
    job_ = submit({{"command", {"sh", "-c", replaced(kCounter, "DEAF", std::to_string(kDeafEvery))}},
                   {"preemptible", true},
                   {"priorityClass", "patient"},
                   {"grace", "300ms"},
                   {"run", {{"make", false}}}});
    const auto began = clock_.now();
    for (std::int64_t i = 1; i <= preemptions; ++i) {
      const auto before = await_steps();
      const auto urgent = submit({{"command", {"true"}}, {"priorityClass", "urgent"}, {"run", {{"make", false}}}});
      if (i % kServerDiesEvery == 0) {
        program_->kill();
        program_->start();
        ++server_kills_;
      }
      await("urgent work",
            [&] { return phase(urgent) == "succeeded" ? std::optional<std::int64_t>(1) : std::nullopt; });
      await("the next attempt",
            [&] { return job().at("attempts").as_int64() > before ? std::optional<std::int64_t>(1) : std::nullopt; });
    }
    seconds_ = static_cast<double>((clock_.now() - began).count()) / 1e6;
    await_steps();
    call([&](client::ApiClient& api) { api.post("/v1/jobs/" + job_ + "/cancel", json::object{}, kProject); });
    await("the end", [&] { return phase(job_) == "cancelled" ? std::optional<std::int64_t>(1) : std::nullopt; });
    check(preemptions);
  }

 private:
  static inline const client::Query kProject{{"scope", "/t/default/p/default"}};
  std::string data() const { return directory_ + "/data"; }
  std::string ledger() const { return read_text(fmt::format("{}/jobs/{}/checkpoint/ledger", data(), job_)); }

  static std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
    std::string out(text);
    out.replace(out.find(what), what.size(), with);
    return out;
  }
  void call(const std::function<void(client::ApiClient&)>& work) {
    client::ApiClient api({program_->url(), program_->token(), "", ""});
    work(api);
  }
  std::string submit(const json::value& spec) {
    std::string id;
    call([&](client::ApiClient& api) {
      const auto answer = api.post("/v1/jobs", {{"jobs", {{{"name", "drill"}, {"spec", spec}}}}}, kProject);
      id = answer.at("jobs").at(0).at("id").as_string();
    });
    return id;
  }
  json::value job(const std::string& id) {
    json::value out;
    call([&](client::ApiClient& api) { out = api.get("/v1/jobs/" + id, kProject); });
    return out;
  }
  json::value job() { return job(job_); }
  std::string phase(const std::string& id) { return std::string(job(id).at("phase").as_string()); }
  std::int64_t steps_of(std::int64_t attempt) const {
    std::int64_t out = 0;
    const auto begins = fmt::format("step {} ", attempt);
    for (const auto line : split(ledger(), '\n')) out += line.starts_with(begins);
    return out;
  }
  // Until its newest attempt has done something; which that is.
  std::int64_t await_steps() {
    return await("steps", [&]() -> std::optional<std::int64_t> {
      const auto attempts = job().at("attempts").as_int64();
      return steps_of(attempts) >= kSteps ? std::optional(attempts) : std::nullopt;
    });
  }
  template <class F>
  std::int64_t await(std::string_view what, F look) {
    for (const auto until = clock_.now() + kPatience; clock_.now() < until; pause(kLookUs))
      if (const auto found = look()) return *found;
    throw Error(Code::deadline,
                fmt::format("{} never came: {}\n{}", what, json::serialize(job()), read_text(directory_ + "/log")));
  }

  void check(std::int64_t preemptions) {
    const auto life = job();
    json::value usage, events;
    call([&](client::ApiClient& api) {
      auto query = kProject;
      query.emplace_back("by", "job");
      usage = api.get("/v1/usage", query);
      events = api.get("/v1/jobs/" + job_ + "/events", kProject);
    });
    std::set<std::int64_t> saved;
    for (const auto& event : events.at("items").as_array())
      if (event.at("phase").as_string() == "pending" && event.at("why").as_string().starts_with("ended with 75"))
        saved.insert(event.at("attempt").as_int64());
    const auto found = read_ledger(ledger(), saved);
    double lost_seconds = 0;
    for (const auto& item : usage.at("items").as_array())
      if (item.at("key").as_string() == job_) lost_seconds = item.at("lost_seconds").to_number<double>();
    const auto counted = life.at("preemptions").as_int64(), attempts = life.at("attempts").as_int64();
    fmt::print(
        "result {} preemptions in {:.1f} s ({} kills of the server): {} saved in time, {} did not listen or were "
        "killed; "
        "{} steps done, none lost of those that saved; lost work {} steps since the last checkpoint, {:.2f} processor "
        "seconds; no two attempts at once\n",
        counted, seconds_, server_kills_, saved.size(), counted - static_cast<std::int64_t>(saved.size()),
        found.distinct, found.lost, lost_seconds);
    const auto must = [](bool holds, std::string_view what) {
      if (!holds) throw Error(Code::corrupt, std::string(what));
    };
    must(counted == preemptions, "not every urgent job stopped it exactly once");
    must(attempts == found.attempts, "an attempt left no trace, or one too many");
    must(found.lost_saved == 0, "an attempt that ended with 75 lost steps");
    must(static_cast<std::int64_t>(saved.size()) * 2 > preemptions, "most attempts did not save in time");
    must(found.steps == found.distinct + found.lost, "steps do not add up");
  }

  std::string directory_, job_;
  std::unique_ptr<Program> program_;
  const sys::RealClock clock_;
  int server_kills_ = 0;
  double seconds_ = 0;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  std::string binary;
  std::int64_t preemptions = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--preemptions" && i + 1 < argc)
      preemptions = parse_int(argv[++i]).value_or(preemptions);
    else
      binary = word;
  }
  try {
    tests::Drill(binary).run(preemptions);
    return 0;
  } catch (const std::exception& e) {
    fmt::print("result failed: {}\n", e.what());
    return 1;
  }
}
