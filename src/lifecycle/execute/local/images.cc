// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/images.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/execute/local/oci_layout.h"

namespace falaj::execute::local {
namespace {

// In the child. "" or what went wrong.
std::string unpack_whole(const std::string& layout, const OciImage& image, const std::string& root) {
  const std::string part = fmt::format("{}.part", root);
  std::error_code none;
  try {
    std::filesystem::remove_all(part, none);  // of one that was interrupted
    std::filesystem::create_directories(part);
    unpack(layout, image, part);
    std::filesystem::permissions(part, std::filesystem::perms(0755));
    std::filesystem::rename(part, root);
    return "";
  } catch (const std::exception& error) {
    std::filesystem::remove_all(part, none);
    return error.what()[0] ? error.what() : "it cannot be unpacked";
  }
}

}  // namespace

Images::~Images() {
  for (const auto& [root, unpacking] : unpacking_) loop_.unwatch(unpacking.outcome.get());
}

void Images::want(const std::string& image, const void* who, Ready ready) {
  if (!is_oci_layout(image)) return ready(image, "");
  std::string root;
  OciImage described;
  try {
    described = read_oci_layout(image);
    root = fmt::format("{}/{}", directory_, described.manifest);
  } catch (const Error& error) {
    return ready("", error.what());
  }
  if (::access(root.c_str(), F_OK) == 0) return ready(root, "");
  const auto [found, fresh] = unpacking_.try_emplace(root);
  found->second.waiting.push_back({who, std::move(ready)});
  if (fresh) begin(image, root, found->second);
}

void Images::begin(const std::string& image, const std::string& root, Unpacking& unpacking) {
  int ends[2];
  const bool piped = ::pipe2(ends, O_CLOEXEC) == 0;
  const pid_t child = piped ? ::fork() : -1;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::umask(022);
    std::string problem = unpack_whole(image, read_oci_layout(image), root).substr(0, 1000);
    [[maybe_unused]] const auto n = ::write(ends[1], problem.data(), problem.size());
    ::_exit(0);
  }
  if (piped) {
    ::close(ends[1]);
    unpacking.outcome = sys::Descriptor(ends[0]);
  }
  if (child > 0) loop_.watch(ends[0], EPOLLIN, [this, root](std::uint32_t) { finish(root); });
  if (child < 0) loop_.after(sys::Micros(0), [this, root] { finish(root); });
}

void Images::finish(const std::string& root) {
  auto unpacking = unpacking_.extract(root);
  char text[1001] = {};
  const auto& outcome = unpacking.mapped().outcome;
  const auto n = outcome ? ::read(outcome.get(), text, sizeof text - 1) : -1;
  if (outcome) loop_.unwatch(outcome.get());
  std::string problem = n > 0 ? text : "";
  if (problem.empty() && ::access(root.c_str(), F_OK) != 0) problem = "unpacking an image: it was interrupted";
  for (const auto& waiting : unpacking.mapped().waiting) waiting.ready(problem.empty() ? root : "", problem);
}

void Images::cancel(const void* who) {
  for (auto& [root, unpacking] : unpacking_)
    std::erase_if(unpacking.waiting, [&](const Waiting& waiting) { return waiting.who == who; });
}

}  // namespace falaj::execute::local
