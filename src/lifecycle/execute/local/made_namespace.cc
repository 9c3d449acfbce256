// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/made_namespace.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::execute::local {
namespace {

struct Outcome {
  int error = 0;
  char failed[100] = {};
};

[[noreturn]] void make_in_child(int socket, const std::function<const char*()>& make) {
  Outcome outcome;
  ::prctl(PR_SET_DUMPABLE, 1);  // or its namespaces are root's
  if (const char* failed = make()) {
    outcome.error = errno;
    std::string_view(failed).copy(outcome.failed, sizeof outcome.failed - 1);
  }
  [[maybe_unused]] auto n = ::send(socket, &outcome, sizeof outcome, MSG_NOSIGNAL);
  n = ::recv(socket, &outcome, 1, 0);  // until the parent has taken it
  ::_exit(0);
}

}  // namespace

sys::Descriptor made_namespace(const char* kind, const std::function<const char*()>& make,
                               const std::function<const char*(pid_t)>& complete) {
  const auto fail = [&](std::string_view doing, int error) {
    throw Error(Code::unavailable,
                fmt::format("a namespace ({}): {}: {}", kind, doing, std::generic_category().message(error)));
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("a socket", errno);
  sys::Descriptor ours(ends[0]), theirs(ends[1]);
  // The thread sanitizer gives children of fork a second thread, and who has two may not leave its user namespace.
  const pid_t child = ::_Fork();
  if (child < 0) fail("a process", errno);
  if (child == 0) {
    ours = sys::Descriptor();
    make_in_child(theirs.get(), make);
  }
  theirs = sys::Descriptor();
  Outcome outcome{EIO, "its process ended"};
  while (::recv(ours.get(), &outcome, sizeof outcome, 0) < 0 && errno == EINTR) {
  }
  sys::Descriptor made;
  const char* failed = outcome.error ? outcome.failed : complete ? complete(child) : nullptr;
  if (!failed) made = sys::Descriptor(::open(fmt::format("/proc/{}/ns/{}", child, kind).c_str(), O_RDONLY | O_CLOEXEC));
  const int error = outcome.error ? outcome.error : errno;
  ours = sys::Descriptor();
  ::waitpid(child, nullptr, 0);
  if (failed) fail(failed, error);
  if (!made) fail("taking it", error);
  return made;
}

}  // namespace falaj::execute::local
