// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/crash_note.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace falaj::serve {
namespace {

thread_local const CrashNote::Name* doing_here = nullptr;

CrashNote* crash_note = nullptr;

// What a handler runs on, for a thread as long as it lives: its own stack may be what ran out.
class HandlerStack {
 public:
  HandlerStack() {
    at_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) return;  // it goes without
    stack_t stack{};
    stack.ss_sp = at_;
    stack.ss_size = kBytes;
    ::sigaltstack(&stack, nullptr);
  }
  ~HandlerStack() {
    if (at_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
    ::munmap(at_, kBytes);
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;
  void need() const {}

 private:
  static constexpr std::size_t kBytes = 64 * 1024;
  void* at_;
};
thread_local const HandlerStack handler_stack;

}  // namespace

AtWork::AtWork(CrashNote::Name* at, std::string_view digest) : at_(at) {
  if (!at_) return;
  handler_stack.need();  // made at a thread's first call
  std::memcpy(*at_, digest.data(), std::min(digest.size(), CrashNote::kDigest));
  doing_here = at_;
}

AtWork::~AtWork() {
  if (!at_) return;
  (*at_)[0] = 0;
  doing_here = nullptr;
}

// Which model was at work, then on to what the signal does by itself.
void AtWork::on_crash(int number) {
  if (doing_here) std::memcpy(crash_note->crashed, *doing_here, CrashNote::kDigest);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void AtWork::leave_names_in(CrashNote& note) {
  crash_note = &note;
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS}) ::sigaction(number, &action, nullptr);
}

}  // namespace falaj::serve
