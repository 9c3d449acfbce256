// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/supervisor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/net/server.h"
#include "lifecycle/execute/local/restrict.h"

namespace falaj::serve {
namespace {

constexpr const char* kKeyFile = "control-plane.key";
constexpr std::int64_t kPollWaitUs = 10'000'000, kRetryUs = 250'000, kReportUs = 1'000'000;
constexpr std::int64_t kCrashPauseUs = 500'000;
constexpr sys::Micros kFetchPauseLeast = std::chrono::milliseconds(250), kFetchPauseMost = std::chrono::minutes(1);

[[noreturn]] void fail(std::string_view doing) {
  throw Error(Code::unavailable, fmt::format("{}: {}", doing, std::strerror(errno)));
}

// A socket that listens, or only holds the port for those of the same user that say they share it. `port` 0 becomes
// the one that the kernel chose.
sys::Descriptor take_port(const std::string& host, std::uint16_t& port, bool listens) {
  sockaddr_storage address{};
  socklen_t bytes = 0;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    bytes = sizeof v6;
  } else {
    throw Error(Code::invalid, fmt::format("listen: not an address: {}", host));
  }
  sys::Descriptor out(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!out || ::setsockopt(out.get(), SOL_SOCKET, listens ? SO_REUSEADDR : SO_REUSEPORT, &on, sizeof on) != 0 ||
      ::bind(out.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      (listens && ::listen(out.get(), SOMAXCONN) != 0))
    fail(fmt::format("listening on {}:{}", host, port));
  if (::getsockname(out.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) fail("asking for the port");
  port = ntohs(address.ss_family == AF_INET ? v4.sin_port : v6.sin6_port);
  return out;
}

// Which files these are, whatever their names.
std::vector<std::uint64_t> files_of(const WorkerSettings& worker) {
  std::vector<std::uint64_t> out;
  for (const auto* name : {&worker.certificate_file, &worker.key_file, &worker.client_ca_file}) {
    struct stat info {};
    if (!name->empty() && ::stat(name->c_str(), &info) == 0) out.insert(out.end(), {info.st_dev, info.st_ino});
  }
  return out;
}

// Memory that the worker writes and we read when it is gone.
class NoteMemory {
 public:
  NoteMemory() : file_(::memfd_create("falaj-serve-note", MFD_CLOEXEC)) {
    if (!file_ || ::ftruncate(file_.get(), sizeof(CrashNote)) != 0) fail("making shared memory");
    void* at = ::mmap(nullptr, sizeof(CrashNote), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (at == MAP_FAILED) fail("mapping shared memory");
    note_ = static_cast<CrashNote*>(at);
  }
  ~NoteMemory() { ::munmap(note_, sizeof(CrashNote)); }
  NoteMemory(const NoteMemory&) = delete;
  NoteMemory& operator=(const NoteMemory&) = delete;
  int descriptor() const { return file_.get(); }
  const CrashNote& note() const { return *note_; }

 private:
  sys::Descriptor file_;
  CrashNote* note_ = nullptr;
};

// Starts this program again as a worker, with what it needs as descriptors 3 and on.
pid_t start_worker(std::initializer_list<int> given) {
  constexpr int kFirst = 3, kAside = 100;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // First out of the way of where they go, whatever numbers they have, then there.
  int count = 0;
  for (const int one : given) posix_spawn_file_actions_adddup2(&actions, one, kAside + count++);
  for (int i = 0; i < count; ++i) posix_spawn_file_actions_adddup2(&actions, kAside + i, kFirst + i);
  for (int i = 0; i < count; ++i) posix_spawn_file_actions_addclose(&actions, kAside + i);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  char self[] = "/proc/self/exe", as[] = "falaj-serve", worker[] = "--worker";
  char* argv[] = {as, worker, nullptr};
  // As many requests as make a batch are under way at once, and malloc keeps only seven blocks of a size at hand.
  char blocks[] = "GLIBC_TUNABLES=glibc.malloc.tcache_count=64";
  char* environment[] = {blocks, nullptr};
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, self, &actions, &attributes, argv, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) {
    errno = failed;
    fail("starting a worker");
  }
  return pid;
}

// The statements of a plan that the key's owner signed, by digest. What else it names is not served.
std::map<std::string, traffic::Statement> signed_statements(const traffic::Plan& plan, const crypto::PublicKey& key) {
  std::map<std::string, traffic::Statement> out;
  for (const auto& model : plan.models) {
    try {
      const auto signature = from_base64(model.signature);
      crypto::Signature fixed{};
      if (signature.size() != fixed.size()) throw Error(Code::corrupt, "its signature has another length");
      std::copy(signature.begin(), signature.end(), fixed.begin());
      if (!crypto::verify(key, as_bytes(model.text), fixed))
        throw Error(Code::corrupt, "it is not signed by the control plane's key");
      auto statement = decode<traffic::Statement>(parse_json(model.text), "statement");
      const auto sha256 = statement.sha256;
      out.emplace(sha256, std::move(statement));
    } catch (const Error& e) {
      log::warn("statement_not_taken", {{"why", e.what()}});
    }
  }
  return out;
}

std::set<std::string> named_models(const traffic::Plan& plan) {
  std::set<std::string> out;
  for (const auto& endpoint : plan.endpoints)
    for (const auto& variant : endpoint.variants)
      if (!endpoint.stopped) out.insert(variant.sha256);
  return out;
}

bool same_models(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

std::optional<crypto::PublicKey> key_of(const std::string& hex) {
  const auto bytes = from_hex(hex);
  crypto::PublicKey key{};
  if (bytes.size() != key.size()) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

}  // namespace

Supervisor::Supervisor(SupervisorSettings settings, const sys::Clock& clock)
    : settings_(std::move(settings)),
      clock_(clock),
      files_(sys::open_files(settings_.state)),
      spool_(*files_, clock, random_),
      port_(settings_.port) {
  auto& worker = settings_.worker;
  if (worker.require_sandbox && execute::local::landlock_version() == 0)
    throw Error(Code::unavailable,
                "this kernel has no Landlock, so files could not be kept from models: use one that has (Linux 5.13, "
                "lsm=landlock), or say require_sandbox=false");
  listening_ = take_port(worker.listen, port_, true);
  const bool tls = !worker.certificate_file.empty();
  if (settings_.url.empty()) settings_.url = fmt::format("{}://{}:{}", tls ? "https" : "http", worker.listen, port_);
  if (const auto colon = worker.grpc.rfind(':'); colon != std::string::npos) {
    auto port = static_cast<std::uint16_t>(parse_int(worker.grpc.substr(colon + 1)).value_or(0));
    const auto host = worker.grpc.substr(0, colon);
    grpc_place_ = take_port(host, port, false);
    worker.grpc = fmt::format("{}:{}", host, port);
  }
  if (!settings_.public_key.empty()) {
    key_ = key_of(settings_.public_key);
    if (!key_) throw Error(Code::invalid, "public_key: must be 64 hex digits");
  }
  auto last = plan_on_disk();
  Lock lock(mu_);
  told_ = std::move(last);
  following_ = std::thread([this] { follow(); });
  taking_ = std::thread([this] { take_plans(); });
  reporting_ = std::thread([this] { send_reports(); });
  sending_ = std::thread([this] { send_segments(); });
}

Supervisor::~Supervisor() {
  stop();
  following_.join();
  taking_.join();
  reporting_.join();
  sending_.join();
}

void Supervisor::stop() {
  Lock lock(mu_);
  stopping_ = true;
  woken_.notify_all();
  if (link_) {
    try {
      link_->send(json::object{{"stop", true}});
    } catch (const Error&) {
      // It ended before us.
    }
  }
}

Supervisor::Reasons Supervisor::unfetched() const {
  Lock lock(mu_);
  return unfetched_;
}

bool Supervisor::pause(std::int64_t micros) {
  const auto until = clock_.now() + sys::Micros(micros);
  Lock lock(mu_);
  while (!stopping_ && clock_.now() < until) lock.wait_for(woken_, until - clock_.now());
  return !stopping_;
}

// ---- the plan

client::Target Supervisor::target() const {
  auto target = settings_.control;
  if (settings_.control_file.empty()) return target;
  std::ifstream in(settings_.control_file);
  std::getline(in, target.url);
  return target;
}

void Supervisor::follow() {
  bool away = false;
  auto control = std::make_unique<client::ApiClient>(target(), 1);
  for (;;) {
    std::string have;
    {
      Lock lock(mu_);
      if (stopping_) return;
      if (told_) have = told_->fingerprint;
    }
    if (ring_.fetch(*control)) {
      Lock lock(mu_);
      if (link_) tell_plan(*link_);
    }
    try {
      const auto said = control->get("/v1/serving/plan", {{"after", have}, {"wait_us", std::to_string(kPollWaitUs)}});
      if (std::exchange(away, false)) log::info("control_plane_back", {{"url", control->target().url}});
      if (const auto* plan = said.as_object().if_contains("plan"); plan && plan->is_object())
        hear_plan(said.as_object());
    } catch (const Error& e) {
      if (!std::exchange(away, true))
        log::warn("control_plane_away", {{"url", control->target().url}, {"why", e.what()}});
      if (!pause(kRetryUs)) return;
      if (auto now = target(); now.url != control->target().url)
        control = std::make_unique<client::ApiClient>(std::move(now), 1);
    }
  }
}

// Who may no longer ask is told to the worker at once, however long it takes until the plan's models are here.
void Supervisor::hear_plan(const json::object& said) {
  auto told = std::make_shared<Told>();
  told->plan = decode<traffic::Plan>(said.at("plan"), "serving plan");
  told->fingerprint = traffic::fingerprint(told->plan);
  told->public_key = said.at("public_key").as_string();
  Lock lock(mu_);
  const auto revoked = told_ ? traffic::revoked_between(told_->plan, told->plan) : std::vector<traffic::Revoked>();
  told_ = std::move(told);
  woken_.notify_all();
  if (told_->fingerprint != fingerprint_) {
    revoked_.insert(revoked_.end(), revoked.begin(), revoked.end());
    if (link_) tell_revoked(*link_, revoked);
  } else if (!revoked_.empty()) {  // back to the plan that is here, and to who may ask by it
    revoked_.clear();
    if (link_) tell_plan(*link_);
  }
}

// There is a plan to take, or models of the last to be tried again.
bool Supervisor::may_take() {
  return told_ && (told_->fingerprint != fingerprint_ || (!unfetched_.empty() && clock_.now() >= fetch_again_));
}

void Supervisor::take_plans() {
  std::unique_ptr<client::ApiClient> control;
  bool failed = false;
  for (;;) {
    std::shared_ptr<const Told> told;
    {
      Lock lock(mu_);
      while (!stopping_ && !may_take())
        if (unfetched_.empty())
          lock.wait(woken_);
        else
          lock.wait_for(woken_, fetch_again_ - clock_.now());
      if (stopping_) return;
      told = told_;
    }
    try {
      if (auto now = target(); !control || now.url != control->target().url)
        control = std::make_unique<client::ApiClient>(std::move(now), 1);
      take_plan(*control, *told);
      failed = false;
    } catch (const std::exception& e) {
      if (!std::exchange(failed, true)) log::warn("plan_not_taken", {{"why", e.what()}});
      control.reset();
      if (!pause(kRetryUs)) return;
    }
  }
}

void Supervisor::trust(const Told& told) {
  if (key_) return;
  if (!files_->stat(kKeyFile)) files_->write_all(kKeyFile, as_bytes(told.public_key));
  key_ = key_of(std::string(as_text(files_->read_all(kKeyFile, 64))));
  if (!key_) throw Error(Code::corrupt, "the control plane's key is not one");
}

// As an earlier one left it; what somebody else wrote there since is not served.
std::shared_ptr<const Supervisor::Told> Supervisor::plan_on_disk() {
  if (!files_->stat(kPlanFile)) return nullptr;
  try {
    if (!key_ && !files_->stat(kKeyFile)) throw Error(Code::corrupt, "the control plane's key is not beside it");
    trust({});
    auto plan = decode<traffic::Plan>(parse_json(as_text(files_->read_all(kPlanFile, kPlanBytesMax))), "serving plan");
    const auto stated = signed_statements(plan, *key_);
    Reasons unfetched;
    for (const auto& sha256 : named_models(plan))
      if (!stated.contains(sha256) || !files_->stat(model_file(sha256))) unfetched[sha256] = "not fetched yet";
    auto fingerprint = traffic::fingerprint(plan);
    ring_.need(plan);
    Lock lock(mu_);
    fingerprint_ = fingerprint;
    unfetched_ = std::move(unfetched);
    return std::make_shared<const Told>(Told{std::move(plan), std::move(fingerprint), ""});
  } catch (const std::exception& e) {
    log::error("plan_on_disk_not_served", {{"why", e.what()}});
    return nullptr;
  }
}

// Brings here what is not, as far as it can be had; the rest, and why.
Supervisor::Reasons Supervisor::fetch_models(client::ApiClient& control, const traffic::Plan& plan) {
  Reasons out;
  const auto stated = signed_statements(plan, *key_);
  auto wanted = named_models(plan);
  for (const auto& [sha256, statement] : stated) wanted.insert(sha256);
  for (const auto& sha256 : wanted) {
    try {
      const auto statement = stated.find(sha256);
      if (statement == stated.end())
        throw Error(Code::corrupt, "there is no statement about it that the control plane signed");
      fetch(control, sha256, statement->second.bytes);
    } catch (const std::exception& e) {
      out[sha256] = fmt::format("not fetched: {}", e.what());
      log::warn("model_not_fetched", {{"model", sha256}, {"why", e.what()}});
    }
  }
  return out;
}

// While some of its models are not here, the last plan that was here whole stays beside it: what is not here goes on as
// that says.
void Supervisor::write_plan(const traffic::Plan& plan, bool whole) {
  bool was_whole = false;
  {
    Lock lock(mu_);
    was_whole = !fingerprint_.empty() && unfetched_.empty();
  }
  if (!whole && was_whole) files_->write_all(kPlanBefore, files_->read_all(kPlanFile, kPlanBytesMax));
  files_->write_all(kPlanFile, as_bytes(json::serialize(encode(plan))));
  if (whole && files_->stat(kPlanBefore)) files_->remove(kPlanBefore);
}

void Supervisor::take_plan(client::ApiClient& control, const Told& told) {
  trust(told);
  const auto& plan = told.plan;
  auto unfetched = fetch_models(control, plan);
  bool again = false;  // the plan is here already, and some of its models were not
  {
    Lock lock(mu_);
    if (told_->fingerprint != told.fingerprint) return;  // there is another by now; what was fetched is here
    again = told.fingerprint == fingerprint_;
    if (again && same_models(unfetched, unfetched_)) {
      fetch_pause_ = std::clamp(2 * fetch_pause_, kFetchPauseLeast, kFetchPauseMost);
      fetch_again_ = clock_.now() + fetch_pause_;
      return;
    }
  }
  if (!again || unfetched.empty()) write_plan(plan, unfetched.empty());
  if (unfetched.empty()) forget_models(plan);
  ring_.need(plan);
  ring_.fetch(control);
  Lock lock(mu_);
  fingerprint_ = told.fingerprint;
  unfetched_ = std::move(unfetched);
  fetch_pause_ = kFetchPauseLeast;
  fetch_again_ = clock_.now() + fetch_pause_;
  quarantine_.forget_all_but(plan);
  // What was heard meanwhile is not in it.
  revoked_ = traffic::revoked_between(plan, told_->plan);
  log::info("plan_taken",
            {{"fingerprint", fingerprint_}, {"endpoints", plan.endpoints.size()}, {"unfetched", unfetched_.size()}});
  if (link_) tell_plan(*link_);
}

void Supervisor::fetch(client::ApiClient& control, const std::string& sha256, std::int64_t bytes) {
  if (files_->stat(model_file(sha256))) return;  // the worker compares it with its name when it reads it
  auto file = files_->create();
  crypto::Sha256 hash;
  std::int64_t got = 0;
  control.download(
      net::Method::get, "/v1/serving/models/" + sha256, {}, nullptr, [](auto) {},
      [&](BytesView piece) {
        got += static_cast<std::int64_t>(piece.size());
        if (got > bytes) throw Error(Code::corrupt, "a model is longer than its statement says");
        hash.update(piece);
        file->write(piece);
      });
  if (got != bytes || hash.finish().hex() != sha256)
    throw Error(Code::corrupt, "a model's bytes are not what its statement says");
  file->commit(model_file(sha256), sys::NewFile::Durable::now, sys::NewFile::Existing::keep);
}

void Supervisor::forget_models(const traffic::Plan& plan) {
  std::set<std::string> needed;
  for (const auto& [sha256, statement] : signed_statements(plan, *key_)) needed.insert(model_file(sha256));
  for (const auto& file : files_->list(""))
    if (file.name.ends_with(".onnx") && !needed.contains(file.name)) files_->remove(file.name);
}

// ---- the worker

// What a plan was told after counts more than what it says.
void Supervisor::tell_plan(Link& link) {
  if (fingerprint_.empty()) return;
  json::object unfetched;
  for (const auto& [digest, why] : unfetched_) unfetched[digest] = why;
  try {
    link.send(json::object{{"plan", json::object{{"fingerprint", fingerprint_},
                                                 {"quarantined", quarantine_.told()},
                                                 {"unfetched", std::move(unfetched)},
                                                 {"spaces", ring_.told()}}}});
  } catch (const Error&) {
    // It is about to end; the next one is told.
  }
  tell_revoked(link, revoked_);
}

void Supervisor::tell_revoked(Link& link, const std::vector<traffic::Revoked>& what) {
  if (what.empty()) return;
  try {
    link.send(json::object{{"revoked", encode(what)}});
  } catch (const Error&) {
    // As above.
  }
}

void Supervisor::keep_worker() {
  for (;;) {
    {
      Lock lock(mu_);
      if (stopping_) return;
    }
    const auto began = clock_.now();
    run_worker_once();
    if ((clock_.now() - began).count() < kCrashPauseUs && !pause(kCrashPauseUs)) return;
  }
}

void Supervisor::run_worker_once() {
  NoteMemory memory;
  auto [ours, theirs] = Link::pair();
  Dialler dialler(settings_.redis);
  const pid_t pid = start_worker({theirs.get(), listening_.get(), memory.descriptor(), dialler.workers_end()});
  theirs = sys::Descriptor();
  dialler.given();
  Link link(std::move(ours));
  auto settings = settings_.worker;
  settings.redis = settings_.redis.has_value();
  {
    Lock lock(mu_);
    settings.has_plan = !fingerprint_.empty();
    certificate_ = files_of(settings);
  }
  try {
    link.send(encode(settings));
  } catch (const Error&) {
    // Seen below, as its end.
  }
  {
    Lock lock(mu_);
    link_ = &link;
    tell_plan(link);
    if (stopping_) link.close();
  }
  while (auto said = link.receive()) {
    if (auto* segment = said->as_object().if_contains("segment")) {
      take_segment(*segment);
      continue;
    }
    auto* report = said->as_object().if_contains("report");
    if (!report) continue;
    Lock lock(mu_);
    report_is_news_ |= !report_.contains("fingerprint") || report_["fingerprint"] != report->at("fingerprint");
    report_ = std::move(report->as_object());
    if (report_is_news_) woken_.notify_all();
  }
  {
    Lock lock(mu_);
    link_ = nullptr;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  note_end(status, memory.note());
}

// What was at work when it ended is perhaps not loaded again.
void Supervisor::note_end(int status, const CrashNote& note) {
  Lock lock(mu_);
  report_.clear();
  if (stopping_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  const auto how =
      WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : fmt::format("status {}", WEXITSTATUS(status));
  log::warn("worker_ended", {{"how", how}});
  quarantine_.blame(note, how, clock_.now());
}

// A worker may read the files that it was given, and no others that come in their place: another takes over, when its
// requests are answered, that is given those.
void Supervisor::renew_worker_for_certificate() {
  const auto& worker = settings_.worker;
  if (worker.certificate_file.empty()) return;
  const auto now = files_of(worker);
  Lock lock(mu_);
  if (!link_ || now == certificate_) return;
  try {
    net::check_tls({worker.certificate_file, worker.key_file, worker.client_ca_file});
    certificate_ = now;
    log::info("certificate_replaced");
    link_->send(json::object{{"stop", true}});
  } catch (const Error&) {
    // Half of it is there, or the worker is about to end.
  }
}

void Supervisor::send_reports() {
  auto control = std::make_unique<client::ApiClient>(target(), 1);
  for (;;) {
    if (!files_->stat(kLockFile)) return stop();  // whoever removed our directory wants nothing served from it any more
    renew_worker_for_certificate();
    json::object body;
    {
      const auto until = clock_.now() + sys::Micros(kReportUs);
      Lock lock(mu_);
      while (!stopping_ && !report_is_news_ && clock_.now() < until) lock.wait_for(woken_, until - clock_.now());
      if (stopping_) return;
      report_is_news_ = false;
      if (report_.empty()) continue;
      body = report_;
    }
    body["server"] = settings_.name;
    body["url"] = settings_.url;
    body["grpc"] = settings_.worker.grpc;
    try {
      control->post("/v1/serving/reports", body);
    } catch (const Error&) {  // the follower says that it is away
      if (auto now = target(); now.url != control->target().url)
        control = std::make_unique<client::ApiClient>(std::move(now), 1);
    }
  }
}

}  // namespace falaj::serve
