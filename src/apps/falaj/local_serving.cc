// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/local_serving.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"

namespace falaj::app {
namespace {

constexpr sys::Micros kLookEvery{50'000}, kEndWait{15'000'000};

}  // namespace

LocalServing::LocalServing(Options options, serving::Endpoints& endpoints, sys::Processes& processes)
    : options_(std::move(options)), endpoints_(endpoints), processes_(processes) {
  keeping_ = std::thread([this] { keep(); });
}

LocalServing::~LocalServing() {
  {
    Lock lock(mu_);
    stopping_ = true;
    woken_.notify_all();
  }
  keeping_.join();
}

bool LocalServing::pause() {
  Lock lock(mu_);
  if (!stopping_) lock.wait_for(woken_, kLookEvery);
  return !stopping_;
}

bool LocalServing::wanted() {
  const auto plan = endpoints_.current().plan;
  return std::any_of(plan->endpoints.begin(), plan->endpoints.end(), [](const auto& e) { return !e.stopped; });
}

bool LocalServing::runs_already() const {
  const sys::Descriptor lock(::open((options_.directory + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

void LocalServing::start() {
  options_.prepare();
  sys::Command command;
  command.argv = {options_.program};
  command.environment = options_.environment;
  for (const auto& setting : options_.settings) {
    command.argv.emplace_back("--set");
    command.argv.push_back(setting);
  }
  command.stdout_file = command.stderr_file = options_.directory + "/log";
  command.dies_with_parent = false;
  child_ = processes_.start(command);
  log::info("serving_started", {{"pid", child_->pid()}});
}

void LocalServing::keep() {
  do {
    try {
      if (child_) {
        const auto ended = child_->wait(sys::Micros(0));
        if (!ended) continue;
        log::warn("serving_ended", {{"status", ended->status}, {"signal", ended->signal}});
        child_.reset();
        if (ended->signal == 0 && !pause()) break;  // it refused: not at once again
      }
      if (wanted() && !runs_already()) start();
      complained_ = false;
    } catch (const Error& e) {
      if (!std::exchange(complained_, true)) log::warn("serving_not_started", {{"why", e.what()}});
    }
  } while (pause());
  end();
}

void LocalServing::end() {
  if (child_) {
    child_->signal(SIGTERM);
    child_->wait(kEndWait);
    return;
  }
  const sys::Descriptor lock(::open((options_.directory + "/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char text[32] = {};
  if (!lock || ::read(lock.get(), text, sizeof text - 1) <= 0 || !runs_already()) return;
  const auto pid = parse_int(trim(text));
  if (pid && *pid > 1) ::kill(static_cast<pid_t>(*pid), SIGTERM);
}

}  // namespace falaj::app
