// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "foundation/base/error.h"

namespace falaj::blob {

VersionedKey FixedKeys::newest(const TenantName& tenant) {
  std::uint32_t newest = 0;
  {
    Lock lock(mu_);
    newest = newest_.try_emplace(tenant, 1).first->second;
  }
  return {newest, version(tenant, newest)};
}

crypto::Key FixedKeys::version(const TenantName& tenant, std::uint32_t version) {
  {
    Lock lock(mu_);
    const auto newest = newest_.try_emplace(tenant, 1).first->second;
    if (version == 0 || version > newest || version <= forgotten_up_to_[tenant]) {
      throw Error(Code::not_found, "no such version of the tenant's key");
    }
  }
  return crypto::derive(crypto::Key::from(Bytes(32, std::byte{1})), as_bytes(tenant.value),
                        "version " + std::to_string(version));
}

crypto::Key FixedKeys::address_key(const TenantName& tenant) {
  return crypto::derive(crypto::Key::from(Bytes(32, std::byte{1})), as_bytes(tenant.value), "address");
}

void FixedKeys::rotate(const TenantName& tenant) {
  Lock lock(mu_);
  ++newest_.try_emplace(tenant, 1).first->second;
}

void FixedKeys::forget(const TenantName& tenant, std::uint32_t version) {
  Lock lock(mu_);
  forgotten_up_to_[tenant] = version;
}

namespace {
std::uint64_t mixed(std::uint64_t z) {  // SplitMix64: random access into a stream of random words
  z *= 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}
void fill(std::span<std::byte> out, std::uint64_t seed, std::uint64_t at) {
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t word = mixed(mixed(seed) + (at + i) / 8 + 1);
    const std::size_t from = (at + i) % 8;
    const std::size_t n = std::min<std::size_t>(8 - from, out.size() - i);
    std::memcpy(out.data() + i, reinterpret_cast<const char*>(&word) + from, n);
    i += n;
  }
}
}  // namespace

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  fill(bytes, seed, 0);
  return bytes;
}

Source random_source(std::uint64_t size, std::uint64_t seed) {
  return [size, seed, at = std::uint64_t{0}](std::span<std::byte> out) mutable {
    const auto part = out.first(std::min<std::uint64_t>(out.size(), size - at));
    fill(part, seed, at);
    at += part.size();
    return part.size();
  };
}

namespace {

constexpr const char* kSwiftPrograms[] = {"/usr/bin/swift-proxy-server",     "/usr/bin/swift-account-server",
                                          "/usr/bin/swift-container-server", "/usr/bin/swift-object-server",
                                          "/usr/bin/swift-ring-builder",     "/usr/bin/unshare"};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Socket {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Socket() = default;
  Socket(const Socket&) = delete;
  ~Socket() { ::close(fd); }
  bool bind(int port) {
    const sockaddr_in address = loopback(port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool connect(int port) {
    const sockaddr_in address = loopback(port);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  int port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
};

// The first of four ports in a row that nobody listens on; the kernel chooses where to look.
int four_free_ports() {
  for (;;) {
    Socket first, second, third, fourth;
    if (!first.bind(0)) throw Error(Code::unavailable, "no port is free");
    const int port = first.port();
    if (port < 65'000 && second.bind(port + 1) && third.bind(port + 2) && fourth.bind(port + 3)) return port;
  }
}

}  // namespace

bool SwiftServer::is_installed() {
  return std::all_of(std::begin(kSwiftPrograms), std::end(kSwiftPrograms),
                     [](const char* program) { return ::access(program, X_OK) == 0; });
}

SwiftServer::SwiftServer() : port_(four_free_ports()) {
  sys::Command command;
  command.argv = {FALAJ_SERVERS "/swift_s3/run", dir_.path(), std::to_string(port_)};
  command.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"};
  command.stdout_file = command.stderr_file = dir_ / "run.log";
  child_ = processes_.start(command);
  // It answers when all four processes listen. The wait ends with the process, or after five minutes.
  for (int port = port_ + 3; port >= port_; --port) {
    for (int tries = 0;; ++tries) {
      if (Socket probe; probe.connect(port)) break;
      const bool ended = child_->wait(std::chrono::milliseconds(50)).has_value();
      if (ended || tries > 6000) throw Error(Code::unavailable, "the S3 server does not start");
    }
  }
}

SwiftServer::~SwiftServer() { child_.reset(); }

std::string SwiftServer::endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

}  // namespace falaj::blob
