// SPDX-License-Identifier: Apache-2.0
// Claims about the whole program, one JSON line each:
//  - a small read through everything (authenticated, authorised, metered; the resource is one that was read before, so
//    it comes from memory and not from SQLite) against the smallest server that Beast allows, sending the same bytes;
//    one I/O thread each, the same client, in turn;
//  - how soon `falaj up` is ready on a data directory that is there, and what memory it then has.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "apps/falaj/control_plane.h"
#include "foundation/base/text.h"
#include "foundation/net/testing.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"

namespace falaj::app {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(const std::string& claim, const std::vector<double>& ours, const std::string& unit,
            const std::string& against, const std::vector<double>& limit, double goal, const std::string& better) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / limit[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print(
      R"({{"claim":"{}","ours":{:.1f},"unit":"{}","against":"{}","limit":{:.1f},"ratio":{:.3f},"goal":{},"better":"{}","ratio_min":{:.3f},"ratio_max":{:.3f}}})"
      "\n",
      claim, median(ours), unit, against, median(limit), median(ratios), goal, better, *low, *high);
  std::fflush(stdout);
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

constexpr std::string_view kResources = R"(
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [local]}}
---
apiVersion: falaj/v1
kind: Project
metadata: {tenant: acme, name: flights, description: Predicts the delay of a flight., labels: {team: research}}
spec: {zone: local}
)";

void bench_reads() {
  constexpr int kRounds = 9;
  const sys::TempDir dir;
  Settings settings;
  settings.data = dir / "data";
  settings.listen = "127.0.0.1:0";
  settings.http.io_threads = 1;
  settings.rates = {1'000'000, 1'000'000, 1'000'000};
  ControlPlane plane(settings, {}, {});
  plane.platform().resources.apply({"user/bench", "", "", ""}, resource::read_documents("bench", kResources),
                                   [](std::string_view, const iam::Scope&) { return std::nullopt; });
  plane.serve();
  const auto port = static_cast<std::uint16_t>(*parse_int(plane.url().substr(plane.url().rfind(':') + 1)));
  const std::string request = fmt::format(
      "GET /v1/resources/project/flights?scope=/t/acme HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n"
      "Accept: application/json\r\nAuthorization: Bearer {}\r\n\r\n",
      first_line(settings.data + "/" + kAdminTokenFile));
  const auto answer = net::RawConnection(port).ask(request);
  CHECK(answer.status == 200, "the read that is measured fails");
  const net::BareBeast bare(answer.body);
  const sys::RealClock clock;
  std::vector<double> ours, theirs, our_efficiency, their_efficiency;
  for (int round = 0; round < kRounds; ++round) {
    const auto our = net::measure_requests(port, request, clock);
    const auto their = net::measure_requests(bare.port(), request, clock);
    ours.push_back(our.per_second);
    theirs.push_back(their.per_second);
    our_efficiency.push_back(our.per_cpu_second);
    their_efficiency.push_back(their.per_cpu_second);
  }
  report("authorised JSON read of a resource in use", ours, "requests/s", "bare Beast, same bytes, same client", theirs,
         0.6, "higher");
  report("authorised JSON read, by processor time", our_efficiency, "requests/cpu s", "bare Beast, same bytes",
         their_efficiency, 0.6, "higher");
}

// Starts the program, waits for its line and looks at it; then ends it.
struct Start {
  double ms, resident_mb;
};
Start start_once(const std::string& program, const sys::TempDir& dir) {
  const std::string pipe = dir / "ready";
  std::filesystem::remove(pipe);
  CHECK(::mkfifo(pipe.c_str(), 0600) == 0, "cannot make a pipe");
  const int reader = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  sys::Command command;
  command.argv = {program, "up", "--data", dir / "data", "--listen", "127.0.0.1:0"};
  command.environment = {"HOME=" + dir.path()};
  command.stdout_file = pipe;
  command.stderr_file = dir / "log";
  sys::RealProcesses processes;
  const sys::RealClock clock;
  const auto begin = clock.now();
  const auto child = processes.start(command);
  char line[4096];
  const auto n = ::read(reader, line, sizeof line);  // until it is ready
  const auto ready = clock.now();
  CHECK(n > 0 && std::string_view(line, static_cast<std::size_t>(n)).starts_with("ready "), "falaj up said otherwise");
  long pages = 0, resident = 0;
  std::ifstream(fmt::format("/proc/{}/statm", child->pid())) >> pages >> resident;
  child->signal(SIGTERM);
  CHECK(child->wait(std::chrono::seconds(60)), "falaj up did not stop");
  ::close(reader);
  return {static_cast<double>((ready - begin).count()) / 1e3,
          static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / 1e6};
}

void bench_start() {
  constexpr int kStarts = 11;
  char self[PATH_MAX] = {};
  CHECK(::readlink("/proc/self/exe", self, sizeof self - 1) > 0, "who am I");
  const auto program = std::filesystem::path(self).parent_path().parent_path() / "bin" / "falaj";
  CHECK(std::filesystem::exists(program), "build the target falaj first");
  const sys::TempDir dir;
  start_once(program, dir);  // makes the data directory
  std::vector<double> ms, mb;
  for (int i = 0; i < kStarts; ++i) {
    const auto start = start_once(program, dir);
    ms.push_back(start.ms);
    mb.push_back(start.resident_mb);
  }
  report("falaj up, from exec to ready", ms, "ms", "the allowance", std::vector<double>(kStarts, 200), 1, "lower");
  report("memory of falaj up when ready", mb, "MB", "the allowance", std::vector<double>(kStarts, 60), 1, "lower");
}

}  // namespace
}  // namespace falaj::app

int main() {
  falaj::app::bench_reads();
  falaj::app::bench_start();
}
