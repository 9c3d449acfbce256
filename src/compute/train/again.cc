// SPDX-License-Identifier: Apache-2.0
#include "compute/train/again.h"

#include <linux/close_range.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::train {
namespace {

constexpr std::string_view kVariable = "FALAJ_GANG_BEFORE=";  // "times name"
constexpr std::int64_t kTimesMax = 100;

std::pair<std::int64_t, std::string> before() {
  const char* value = std::getenv("FALAJ_GANG_BEFORE");
  const std::string_view text = value ? value : "";
  const auto space = text.find(' ');
  if (space == text.npos) return {0, ""};
  return {parse_int(text.substr(0, space)).value_or(0), std::string(text.substr(space + 1))};
}

}  // namespace

void start_again(const Broken& broken) {
  const auto times = before().first + 1;
  fmt::print(stderr, "falaj-train: {}; those that are left meet again\n", broken.why);
  if (times > kTimesMax) {
    fmt::print(stderr, "falaj-train: it was the {}th time: too often\n", times);
    return;
  }
  std::ifstream command("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(command), {}};
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < words.size(); at += std::string_view(words.c_str() + at).size() + 1)
    arguments.push_back(words.data() + at);
  arguments.push_back(nullptr);
  auto variable = fmt::format("{}{} {}", kVariable, times, broken.gang);
  std::vector<char*> environment;
  for (char** one = environ; *one; ++one)
    if (!std::string_view(*one).starts_with(kVariable)) environment.push_back(*one);
  environment.push_back(variable.data());
  environment.push_back(nullptr);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  std::fflush(nullptr);
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);  // connections to the others among them
  ::execve("/proc/self/exe", arguments.data(), environment.data());
  std::perror("falaj-train: starting again");
}

std::string gang_before() { return before().second; }

}  // namespace falaj::train
