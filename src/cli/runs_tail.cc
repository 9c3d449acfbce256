// SPDX-License-Identifier: Apache-2.0
// run tail

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/runs.h"
#include "foundation/base/mutex.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

struct TailOptions {
  std::string run, every = "1s";
  std::vector<std::string> metrics;
  std::int64_t lines = 10;
};

// Nothing ever signals it.
void pause(std::int64_t us) {
  Mutex mu;
  std::condition_variable never;
  Lock lock(mu);
  lock.wait_for(never, std::chrono::microseconds(us));
}

class Tail {
 public:
  Tail(Session& session, const TailOptions& options)
      : session_(session), options_(options), id_(run_id_of(session, options.run)) {}

  // Prints what was logged since the last time; whether the run goes on.
  bool poll() {
    // What the run says of itself is read first: whatever it logged before it ended is then still to be seen.
    const auto run = session_.api().get("/v1/runs/" + id_, scope());
    const auto& status = run.at("status").as_string();
    const bool goes_on = status == "RUNNING" || status == "SCHEDULED";
    std::vector<Seen> fresh;
    for (const auto& [key, newest] : run.at("metrics").as_object()) {
      const std::string name(key);
      if (!options_.metrics.empty() &&
          std::find(options_.metrics.begin(), options_.metrics.end(), name) == options_.metrics.end())
        continue;
      auto& known = known_[name];
      if (goes_on && known.newest == newest) continue;
      known.newest = newest;
      read(name, known, fresh);
    }
    std::stable_sort(fresh.begin(), fresh.end(), [](const Seen& a, const Seen& b) { return a.unix_ms < b.unix_ms; });
    const auto skip = first_ && fresh.size() > static_cast<std::size_t>(options_.lines)
                          ? fresh.size() - static_cast<std::size_t>(options_.lines)
                          : 0;
    for (std::size_t i = skip; i < fresh.size(); ++i) print(fresh[i]);
    first_ = false;
    if (!goes_on) session_.output().line(fmt::format("the run is {}", std::string_view(status)));
    std::fflush(stdout);
    return goes_on;
  }

 private:
  struct Seen {
    std::int64_t unix_ms = 0;
    std::string key;
    json::value point;
  };
  struct Known {
    json::value newest;
    std::string cursor;
  };

  client::Query scope() { return {{"scope", session_.project_scope()}}; }

  void read(const std::string& key, Known& known, std::vector<Seen>& fresh) {
    std::string path = "/v1/runs/" + id_ + "/metrics";
    for (const auto element : split(key, '/')) path += "/" + client::path_element(element);
    for (bool more = true; more;) {
      auto query = scope();
      if (!known.cursor.empty()) query.emplace_back("cursor", known.cursor);
      const auto page = session_.api().get(path, query);
      for (const auto& point : page.at("items").as_array())
        fresh.push_back({point.at("unix_ms").as_int64(), key, point});
      known.cursor = page.at("resume").as_string();
      more = page.as_object().contains("next");
    }
  }

  void print(const Seen& seen) {
    const auto output = session_.output();
    if (output.for_people()) {
      output.line(fmt::format("{}  step {:>6}  {}  {}", time_ms(seen.point.at("unix_ms")),
                              seen.point.at("step").as_int64(), harmless(seen.key),
                              harmless(measure(seen.point.at("value")))));
    } else {
      json::object line{{"key", seen.key}};
      for (const auto& [key, value] : seen.point.as_object()) line[key] = value;
      output.raw(json::serialize(line) + "\n");  // one a line: who reads it does not wait for the end
    }
  }

  Session& session_;
  const TailOptions& options_;
  const std::string id_;
  std::map<std::string, Known> known_;
  bool first_ = true;
};

}  // namespace

void add_tail_command(CLI::App& run, Session& session) {
  auto options = std::make_shared<TailOptions>();
  auto* tail = run.add_subcommand("tail", "Follow the points a run logs until it ends; with -o json one object a line");
  tail->add_option("run", options->run, "Its id, or a name that only it has")->required();
  tail->add_option("-m,--metric", options->metrics, "Only this metric; may be repeated");
  tail->add_option("-n,--lines", options->lines, "Points to begin with")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  tail->add_option("--every", options->every, "How often to look")->capture_default_str();
  tail->callback([&session, options] {
    const auto every = parse_duration_us(options->every);
    if (!every || *every < 10'000) throw Error(Code::invalid, "--every: a time of 10ms or more, such as 1s");
    Tail follow(session, *options);
    while (follow.poll()) pause(*every);
  });
}

}  // namespace falaj::cli
