// SPDX-License-Identifier: Apache-2.0
// falaj-serve: answers inference requests with the models that the control plane's plan names.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "compute/infer/session.h"
#include "compute/serve/supervisor.h"
#include "compute/serve/worker.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/config/config.h"
#include "foundation/config/secret.h"
#include "foundation/sys/clock.h"

namespace falaj::app {

struct ServeSettings {
  std::string data = "~/.falaj-serve";
  std::string control = "http://127.0.0.1:8470";
  std::string token;  // a reference
  std::string ca_file, public_key;
  std::string name;
  std::string url;
  std::string listen = "127.0.0.1:8480";
  std::string grpc = "127.0.0.1:8481";
  std::string certificate_file, key_file, client_ca_file;
  std::string runtime;
  std::string online;
  std::string redis_host, redis_socket, redis_password;
  std::int64_t redis_port = 6379;
  std::int64_t threads = 1, grpc_threads = 1, slow_threads = 0;
  std::int64_t memory = 0;
  bool require_sandbox = true;
  std::int64_t body_bytes = std::int64_t{64} << 20;
  std::int64_t connections = 10'000;
  std::vector<std::string> host_names;
  std::string log_level = "info";
};

inline constexpr std::string_view kServeLogLevels[] = {"debug", "info", "warn", "error"};

}  // namespace falaj::app

template <>
struct falaj::Shape<falaj::app::ServeSettings> {
  using T = app::ServeSettings;
  static constexpr std::string_view name = "ServeSettings";
  static Fields fields() {
    return {
        field("data", &T::data, "Directory of the last plan and its models.").length(1, 4096),
        field("control", &T::control, "The control plane, or file:PATH of a file that holds its address.")
            .length(1, 1024),
        field("token", &T::token, "Where its token is: file:PATH or env:NAME. It needs the role server.").secret(),
        field("ca_file", &T::ca_file, "Authorities that the control plane's certificate may be of; the system's."),
        field("public_key", &T::public_key,
              "Of the control plane, 64 hex digits; the first that it tells is kept when absent."),
        field("name", &T::name, "Of this server; the machine's name when absent.").length(0, 128),
        field("url", &T::url, "Where clients find it; as it listens when absent.").length(0, 1024),
        field("listen", &T::listen, "HOST:PORT for HTTP; beyond loopback TLS is required.").length(1, 256),
        field("grpc", &T::grpc, "HOST:PORT for gRPC; empty = none.").length(0, 256),
        field("certificate_file", &T::certificate_file, "Certificate chain, PEM; with key_file it turns TLS 1.3 on."),
        field("key_file", &T::key_file, "Private key, PEM."),
        field("client_ca_file", &T::client_ca_file, "Authorities whose client certificates are asked for."),
        field("runtime", &T::runtime, "ONNX Runtime's library; the one that came with this program when absent."),
        field("online", &T::online,
              "Directory of the control plane's online store, for endpoints that look up features; it must be on this "
              "machine.")
            .length(0, 4096),
        field("redis_host", &T::redis_host, "Redis, where the platform keeps its features there.").length(0, 255),
        field("redis_port", &T::redis_port, "Its port.").range(1, 65535),
        field("redis_socket", &T::redis_socket, "Its socket on this machine, instead of host and port.").length(0, 107),
        field("redis_password", &T::redis_password, "Where its password is: file:PATH or env:NAME.").secret(),
        field("threads", &T::threads, "That read HTTP and run models.").range(1, 256),
        field("grpc_threads", &T::grpc_threads, "That read gRPC and run models.").range(1, 256),
        field("slow_threads", &T::slow_threads,
              "For calls of models that take a millisecond or more; 0 = as many as there are processors.")
            .range(0, 256),
        field("memory", &T::memory,
              "Most that the process that runs models may take: what wants more fails; 0 = three quarters of the "
              "machine's.")
            .bytes()
            .range(0, std::int64_t{1} << 50),
        field("require_sandbox", &T::require_sandbox,
              "Whether to refuse to start on a kernel that cannot keep files from models (Landlock: Linux 5.13)."),
        field("body_bytes", &T::body_bytes, "Of one request.").bytes().range(1024, std::int64_t{1} << 31),
        field("connections", &T::connections, "Open at once.").range(1, 1'000'000),
        field("host_names", &T::host_names, "Names by which clients may call it, besides the address.").length(0, 100),
        field("log_level", &T::log_level, "Lowest level that is logged.").one_of(app::kServeLogLevels)};
  }
};

namespace falaj::app {
namespace {

constexpr int kAlreadyRuns = 4;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", path));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> environment_of_process() {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at) out.emplace_back(*at);
  return out;
}

struct Address {
  std::string host;
  std::uint16_t port = 0;
};
Address parse_address(const std::string& text, std::string_view what) {
  const auto colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535)
    throw Error(Code::invalid, fmt::format("{}: must be HOST:PORT, not '{}'", what, text));
  auto host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, static_cast<std::uint16_t>(*port)};
}

void refuse_open_door(const ServeSettings& settings, const Address& address, std::string_view what) {
  const bool loopback = address.host.starts_with("127.") || address.host == "::1" || address.host == "localhost";
  if (!loopback && settings.certificate_file.empty())
    throw Error(Code::invalid,
                fmt::format("{}: beyond loopback TLS is required: set certificate_file and key_file", what));
}

serve::SupervisorSettings supervisor_settings(ServeSettings settings, const std::vector<std::string>& environment) {
  const char* home = std::getenv("HOME");
  if (settings.data.starts_with("~/") && home) settings.data = std::string(home) + settings.data.substr(1);
  std::filesystem::create_directories(settings.data);
  settings.data = std::filesystem::canonical(settings.data).string();
  const auto http = parse_address(settings.listen, "listen");
  refuse_open_door(settings, http, "listen");
  if (!settings.grpc.empty()) refuse_open_door(settings, parse_address(settings.grpc, "grpc"), "grpc");
  char machine[256] = "here";
  ::gethostname(machine, sizeof machine - 1);

  serve::SupervisorSettings out;
  out.name = settings.name.empty() ? machine : settings.name;
  if (settings.control.starts_with("file:"))
    out.control_file = settings.control.substr(5);
  else
    out.control.url = settings.control;
  out.control.ca_file = settings.ca_file;
  if (settings.token.empty())
    throw Error(Code::invalid, "token: where the control plane's token is, such as file:PATH");
  out.control.token = std::string(trim(config::resolve_secret(settings.token, environment, read_file)));
  out.state = settings.data;
  out.public_key = settings.public_key;
  out.port = http.port;
  out.url = settings.url;
  auto& worker = out.worker;
  worker.listen = http.host;
  worker.grpc = settings.grpc;
  worker.certificate_file = settings.certificate_file;
  worker.key_file = settings.key_file;
  worker.client_ca_file = settings.client_ca_file;
  worker.models = settings.data;
  worker.runtime = settings.runtime.empty() ? infer::Runtime::path_beside_program() : settings.runtime;
  worker.online = settings.online;
  if (!settings.redis_host.empty() || !settings.redis_socket.empty()) {
    auto& redis = out.redis.emplace();
    redis.host = settings.redis_host;
    redis.port = static_cast<int>(settings.redis_port);
    redis.unix_socket = settings.redis_socket;
    if (!settings.redis_password.empty())
      redis.password = std::string(trim(config::resolve_secret(settings.redis_password, environment, read_file)));
  }
  worker.http_threads = settings.threads;
  worker.grpc_threads = settings.grpc_threads;
  worker.slow_threads = settings.slow_threads;
  worker.memory_bytes = settings.memory;
  worker.require_sandbox = settings.require_sandbox;
  worker.body_bytes_max = settings.body_bytes;
  worker.connections_max = settings.connections;
  worker.host_names = settings.host_names;
  return out;
}

int supervise(const config::Sources& sources) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);  // keys of features are in memory, also of the workers that we start
  const auto settings = config::load<ServeSettings>(sources);
  static sys::RealClock clock;
  auto given = supervisor_settings(settings, environment_of_process());
  // One at a time on a directory; whoever waits for its end waits for this lock.
  const sys::Descriptor lock(
      ::open((given.state + "/" + serve::kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    fmt::print(stderr, "falaj-serve: another one runs on {}\n", given.state);
    return kAlreadyRuns;
  }
  const auto pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::write(lock.get(), pid.data(), pid.size()) < 0)
    throw Error(Code::unavailable, "writing the lock file failed");
  log::set_sink(log::json_lines([] { return clock.wall().count(); }), log::Level::info);
  const bool tls = !given.worker.certificate_file.empty();
  const auto host = given.worker.listen;
  serve::Supervisor supervisor(std::move(given), clock);
  // Ends with the worker. What else still waits then, waits for the control plane, and has nothing to finish.
  std::thread running([&] {
    supervisor.keep_worker();
    std::fflush(nullptr);
    std::_Exit(0);
  });
  fmt::print("ready {}://{}:{}\n", tls ? "https" : "http", host, supervisor.port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&stop_signals, &signal);
  log::info("stopping", {{"signal", signal}});
  supervisor.stop();
  running.join();
  return 0;
}

// Started by a supervisor, with its end of the link, the listening socket, the note and where connections come from as
// descriptors 3 to 6.
int work() {
  static sys::RealClock clock;
  log::set_sink(log::json_lines([] { return clock.wall().count(); }), log::Level::info);
  void* at = ::mmap(nullptr, sizeof(serve::CrashNote), PROT_READ | PROT_WRITE, MAP_SHARED, 5, 0);
  if (at == MAP_FAILED) return 1;
  ::close(5);
  for (const int end : {3, 4, 6}) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return serve::run_worker(sys::Descriptor(3), sys::Descriptor(4), sys::Descriptor(6),
                           *static_cast<serve::CrashNote*>(at));
}

constexpr std::string_view kHelp = R"(falaj-serve answers inference requests (Open Inference Protocol v2, REST and gRPC)
with the models of the endpoints that a control plane declares.

  falaj-serve [--config FILE] [--set KEY=VALUE]...   start in the foreground
  falaj-serve --explain                              every setting, its value and where that comes from

`falaj up` starts one on the same machine by itself.
)";

int run(int argc, char** argv) {
  config::Sources sources;
  bool explain = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--worker") return work();
    if (word == "--help" || word == "-h") return fmt::print("{}", kHelp), 0;
    if (word == "--explain") {
      explain = true;
    } else if ((word == "--config" || word == "--set") && i + 1 < argc) {
      if (word == "--set") {
        sources.overrides.emplace_back(argv[++i]);
      } else {
        sources.file_name = argv[++i];
        sources.file_text = read_file(sources.file_name);
      }
    } else {
      throw Error(Code::invalid, fmt::format("what is '{}'? See --help", word));
    }
  }
  if (explain) {
    for (const auto& row : config::explain<ServeSettings>(sources))
      fmt::print("{:<18} {:<28} {:<10} {}\n", row.key, row.value, row.source, row.help);
    return 0;
  }
  return supervise(sources);
}

}  // namespace
}  // namespace falaj::app

int main(int argc, char** argv) {
  try {
    return falaj::app::run(argc, argv);
  } catch (const falaj::Error& e) {
    fmt::print(stderr, "falaj-serve: {}\n", e.what());
    for (const auto& fault : e.faults()) fmt::print(stderr, "  {}: {}\n", fault.where, fault.what);
    return e.code() == falaj::Code::invalid ? 2 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "falaj-serve: {}\n", e.what());
    return 1;
  }
}
