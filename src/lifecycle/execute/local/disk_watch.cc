// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/disk_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "lifecycle/execute/local/disk_use.h"

namespace falaj::execute::local {
namespace {

constexpr sys::Micros kFirst = std::chrono::milliseconds(100), kSoonest = std::chrono::milliseconds(300);
constexpr int kRest = 10;  // times as long as looking took

}  // namespace

DiskWatch::DiskWatch(Loop& loop, const sys::Clock& clock, std::string directory, std::int64_t bytes_max, Calls calls)
    : loop_(loop), clock_(clock), directory_(std::move(directory)), bytes_max_(bytes_max), calls_(std::move(calls)) {
  next_ = loop_.after(kFirst, [this] { look(); });
}

DiskWatch::~DiskWatch() {
  if (next_) loop_.cancel(*next_);
  if (answer_) loop_.unwatch(answer_.get());
}

void DiskWatch::look() {
  next_.reset();
  began_ = clock_.now();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    answer_ = sys::Descriptor(ends[0]);
    const sys::Descriptor tell(ends[1]);
    const auto processes = calls_.processes();
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      [[maybe_unused]] const int polite = ::nice(10);
      const std::int64_t bytes = disk_use(directory_, processes, bytes_max_);
      [[maybe_unused]] const auto n = ::write(tell.get(), &bytes, sizeof bytes);
      ::_exit(0);
    }
    if (child > 0) {
      loop_.watch(answer_.get(), EPOLLIN, [this](std::uint32_t) { hear(); });
      return;
    }
  }
  next_ = loop_.after(kSoonest, [this] { look(); });  // too many processes or files just then
}

void DiskWatch::hear() {
  std::int64_t bytes = 0;
  const auto n = ::read(answer_.get(), &bytes, sizeof bytes);
  loop_.unwatch(answer_.get());
  answer_ = sys::Descriptor();
  if (n == sizeof bytes && bytes > bytes_max_) return calls_.over();
  next_ = loop_.after(std::max(kSoonest, kRest * (clock_.now() - began_)), [this] { look(); });
}

}  // namespace falaj::execute::local
