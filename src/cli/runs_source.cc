// SPDX-License-Identifier: Apache-2.0
#include "cli/runs_source.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"

extern char** environ;

namespace falaj::cli {
namespace {

constexpr std::size_t kLineBytesMax = 4096, kDiffBytesMax = 1 << 20, kPackagesBytesMax = 1 << 20, kTagCharsMax = 5000;
constexpr sys::Micros kGitWait = std::chrono::seconds(10), kPipWait = std::chrono::seconds(60);

struct Said {
  bool well = false;  // it ended with 0
  std::string text;
  bool cut = false;
};

// What a program prints, at most so much and within that time.
Said said_by(sys::Processes& processes, const sys::Clock& clock, std::vector<std::string> argv, std::size_t bytes_max,
             sys::Micros at_most) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const sys::Descriptor out(ends[0]);
  sys::Descriptor in(ends[1]), nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  sys::Command command;
  command.argv = std::move(argv);
  command.environment = own_environment();
  command.stdout_descriptor = in.get();
  command.stderr_descriptor = nowhere.get();
  Said said;
  try {
    const auto child = processes.start(command);
    in = sys::Descriptor();
    const auto until = clock.now() + at_most;
    for (char piece[4096]; clock.now() < until && !said.cut;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock.now()).count();
      pollfd ready{out.get(), POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left, 1))) <= 0) continue;
      const auto n = ::read(out.get(), piece, sizeof piece);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      said.text.append(piece, static_cast<std::size_t>(n));
      said.cut = said.text.size() > bytes_max;
    }
    if (said.cut) {
      said.text.resize(bytes_max);
      said.well = true;  // dropping the child ends it
      return said;
    }
    const auto exit = child->wait(std::max(until - clock.now(), sys::Micros(0)));
    said.well = exit && *exit == sys::Exit{};
  } catch (const Error&) {
    // No such program: then there is nothing to tell.
  }
  return said;
}

std::string cut_text(const std::string& text) {
  std::size_t bytes = std::min(text.size(), kTagCharsMax);
  while (bytes < text.size() && bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return is_utf8(text) ? text.substr(0, bytes) : "";
}

void add_git(Source& source, sys::Processes& processes, const sys::Clock& clock) {
  // A repository's own settings must not make us run programs.
  const auto git = [&](std::vector<std::string> more, std::size_t bytes_max) {
    std::vector<std::string> argv{"git", "-c", "core.fsmonitor=false", "--no-optional-locks"};
    argv.insert(argv.end(), more.begin(), more.end());
    return said_by(processes, clock, std::move(argv), bytes_max, kGitWait);
  };
  const auto commit = git({"rev-parse", "HEAD"}, kLineBytesMax);
  if (!commit.well) return;
  source.commit = trim(commit.text);
  source.branch = trim(git({"rev-parse", "--abbrev-ref", "HEAD"}, kLineBytesMax).text);
  source.repository = without_secret(std::string(trim(git({"remote", "get-url", "origin"}, kLineBytesMax).text)));
  source.dirty = !git({"status", "--porcelain"}, kLineBytesMax).text.empty();
  if (!source.dirty) return;
  auto diff = git({"diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD"}, kDiffBytesMax);
  source.diff = std::move(diff.text);
  if (diff.cut) source.diff += fmt::format("\n... cut after {} bytes\n", kDiffBytesMax);
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry && *entry; ++entry) out.emplace_back(*entry);
  return out;
}

std::string without_secret(const std::string& url) {
  const auto scheme = url.find("://");
  if (scheme == std::string::npos) return url;
  const auto begin = scheme + 3, end = std::min(url.find('/', begin), url.size());
  const auto at = url.rfind('@', end == 0 ? 0 : end - 1);
  return at == std::string::npos || at < begin ? url : url.substr(0, begin) + url.substr(at + 1);
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+%";
  std::string out;
  for (const auto& word : words) {
    if (!out.empty()) out += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

Source source_of(sys::Processes& processes, const sys::Clock& clock, std::vector<std::string> command) {
  Source source;
  source.command = std::move(command);
  std::error_code ignored;
  source.directory = std::filesystem::current_path(ignored).string();
  utsname system{};
  if (::uname(&system) == 0) {
    source.host = system.nodename;
    source.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  }
  passwd entry{};
  passwd* found = nullptr;
  char names[4096];
  if (::getpwuid_r(::getuid(), &entry, names, sizeof names, &found) == 0 && found) source.user = found->pw_name;
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) source.cpus = CPU_COUNT(&cpus);
  source.memory_bytes = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  add_git(source, processes, clock);
  return source;
}

json::object to_json(const Source& source) {
  json::object out{{"directory", source.directory}, {"host", source.host}, {"user", source.user},
                   {"system", source.system},       {"cpus", source.cpus}, {"memory_bytes", source.memory_bytes}};
  json::array command;
  for (const auto& word : source.command) command.push_back(json::value(is_utf8(word) ? word : "(not UTF-8)"));
  out["command"] = std::move(command);
  if (!source.commit.empty())
    out["git"] = {{"commit", source.commit},
                  {"branch", source.branch},
                  {"repository", source.repository},
                  {"dirty", source.dirty}};
  return out;
}

json::array to_tags(const Source& source) {
  json::array out;
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out.push_back({{"key", key}, {"value", cut_text(value)}});
  };
  add("mlflow.source.name", shell_text(source.command));
  add("mlflow.source.type", "LOCAL");
  add("mlflow.user", source.user);
  add("mlflow.source.git.commit", source.commit);
  add("mlflow.source.git.branch", source.branch);
  add("mlflow.source.git.repoURL", source.repository);
  if (!source.commit.empty()) add("falaj.source.dirty", source.dirty ? "true" : "false");
  add("falaj.source.directory", source.directory);
  add("falaj.source.host", source.host);
  return out;
}

std::optional<std::string> packages_of(sys::Processes& processes, const sys::Clock& clock,
                                       const std::vector<std::string>& command) {
  const auto name = command.empty() ? "" : std::filesystem::path(command[0]).filename().string();
  const auto python = name.starts_with("python") ? command[0] : "python3";
  auto said = said_by(processes, clock, {python, "-m", "pip", "freeze", "--disable-pip-version-check"},
                      kPackagesBytesMax, kPipWait);
  if (!said.well) return std::nullopt;
  return std::move(said.text);
}

}  // namespace falaj::cli
