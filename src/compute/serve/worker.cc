// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "compute/protocol/grpc_server.h"
#include "compute/serve/front.h"
#include "compute/serve/host.h"
#include "compute/serve/link.h"
#include "compute/serve/online_store.h"
#include "compute/serve/sandbox.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/net/server.h"
#include "foundation/sys/files.h"
#include "foundation/sys/random.h"

namespace falaj::serve {
namespace {

constexpr std::int64_t kDrainUs = 10'000'000;
constexpr sys::Micros kReportEvery{1'000'000};
constexpr std::size_t kComparedBytesMax = std::size_t{2}
                                          << 20;  // of a report; what is beyond it waits for others to end

// Buckets that hold something and their counts, in turn.
json::array not_empty(const Latencies::Snapshot& snapshot) {
  json::array out;
  for (std::size_t i = 0; i < snapshot.size(); ++i)
    if (snapshot[i] > 0) out.insert(out.end(), {static_cast<std::int64_t>(i), static_cast<std::int64_t>(snapshot[i])});
  return out;
}

std::map<std::string, std::string> reasons_in(const json::value& told) {
  std::map<std::string, std::string> out;
  for (const auto& one : told.as_object()) out[std::string(one.key())] = std::string(one.value().as_string());
  return out;
}

// What must not end the process: it would take what all endpoints are answered from with it, and the next would come by
// here again.
template <class F>
void attempt(const char* failed, F&& work) {
  try {
    work();
  } catch (const std::exception& e) {  // no memory, too
    log::error(failed, {{"why", e.what()}});
  }
}

class Worker {
 public:
  Worker(Link& link, const WorkerSettings& settings, sys::Descriptor listening, CrashNote& note, OnlineStore& online,
         bool files_confined)
      : link_(link),
        settings_(settings),
        online_(online),
        files_(sys::read_files(settings.models)),
        ids_(clock_, random_),
        predictions_(clock_, random_, [this](const LogSegment& segment) { hand_on(segment); }),
        watcher_(clock_,
                 [this](const json::object& segment) {
                   link_.send(json::object{{"segment", segment}});
                 }),
        host_(clock_, &note, &predictions_, {.slow_threads = static_cast<std::size_t>(settings.slow_threads)}),
        front_(host_, settings.body_bytes_max, metrics_),
        loader_(infer::Runtime::load(settings.runtime), {}, clock_) {
    source_.bytes = [this](const std::string& sha256) { return read_model(sha256); };
    host_.wake = [this](const std::string& variant) {
      Lock lock(mu_);
      if (wanted_.insert(variant).second) woken_.notify_all();
    };
    loader_.around_loading = [&note](const std::string& sha256, const std::function<void()>& load) {
      const AtWork loading(&note.loading, sha256);
      load();
    };
    metrics_
        .gauge("falaj_serve_isolation", "What the process that runs models is kept from, by how.",
               {{"calls", "seccomp"}, {"files", files_confined ? "landlock" : "none"}})
        .Set(1);
    listen_for_grpc();
    confine_calls();
    listening_ = std::move(listening);
    if (!settings.has_plan) listen_for_http();
    reporter_ = std::thread([this] { report(); });
    loading_thread_ = std::thread([this] { load(); });
  }

  ~Worker() {
    {
      Lock lock(mu_);
      stopping_ = true;
      woken_.notify_all();
    }
    reporter_.join();
    loading_thread_.join();
    if (grpc_) grpc_->stop(kDrainUs);
    if (http_) http_->stop(kDrainUs);
    host_.close();
    predictions_.flush();
    watcher_.turn(*host_.catalogue());
  }

  void follow() {
    while (auto said = link_.receive()) {
      const auto& message = said->as_object();
      if (message.contains("stop")) return;
      if (const auto* plan = message.if_contains("plan")) take_plan(plan->as_object());
      if (const auto* revoked = message.if_contains("revoked")) take_back(*revoked);
      if (const auto* lost = message.if_contains("lost"))
        predictions_.lost(std::string(lost->at("endpoint").as_string()), lost->at("rows").to_number<std::uint64_t>());
    }
  }

 private:
  std::optional<net::TlsFiles> tls() const {
    if (settings_.certificate_file.empty()) return std::nullopt;
    return net::TlsFiles{settings_.certificate_file, settings_.key_file, settings_.client_ca_file};
  }

  // Needs nothing that is forbidden by now: its socket listens already.
  void listen_for_http() {
    net::ServerLimits limits;
    limits.io_threads = static_cast<std::size_t>(settings_.http_threads);
    limits.worker_threads = 1;
    limits.connections_max = static_cast<std::size_t>(settings_.connections_max);
    limits.requests_max = limits.connections_max;
    limits.host_names = settings_.host_names;
    http_ = std::make_unique<net::Server>(listening_.release(), settings_.listen, tls(), limits, front_, clock_, ids_,
                                          metrics_);
  }

  void listen_for_grpc() {
    const auto colon = settings_.grpc.rfind(':');
    if (colon == std::string::npos) return;
    protocol::GrpcLimits limits;
    limits.threads = static_cast<std::size_t>(settings_.grpc_threads);
    limits.first_loop = static_cast<std::size_t>(settings_.http_threads);
    limits.share_port = true;
    limits.message_bytes_max = static_cast<std::size_t>(settings_.body_bytes_max);
    const auto port = static_cast<std::uint16_t>(parse_int(settings_.grpc.substr(colon + 1)).value_or(0));
    grpc_ = std::make_unique<protocol::GrpcServer>(settings_.grpc.substr(0, colon), port, tls(), limits, host_, clock_,
                                                   ids_, metrics_);
  }

  Bytes read_model(const std::string& sha256) {
    auto bytes = files_->read_all(model_file(sha256), std::size_t{2} << 30);
    if (crypto::sha256(bytes).hex() != sha256) throw Error(Code::corrupt, "the model's file is not what it was");
    return bytes;
  }

  traffic::Plan read_plan(const char* file) const {
    return decode<traffic::Plan>(parse_json(as_text(files_->read_all(file, kPlanBytesMax))), "serving plan");
  }

  // Loading takes its time, and what is said meanwhile must be heard. Only the last plan counts.
  void take_plan(const json::object& message) {
    Lock lock(mu_);
    given_ = message;
    given_number_ = ++heard_;
    woken_.notify_all();
  }

  // At once, and again from what is made of a plan that was told before.
  void take_back(const json::value& message) {
    auto what = decode<std::vector<traffic::Revoked>>(message, "revoked");
    Lock lock(mu_);
    host_.revoke(what);
    revoked_.emplace_back(++heard_, std::move(what));
  }

  void apply(const json::object& message, std::uint64_t number) {
    {
      Lock loading(loading_);
      plan_number_ = number;
      source_.quarantined = reasons_in(message.at("quarantined"));
      source_.unfetched = reasons_in(message.at("unfetched"));
      take_spaces(message.at("spaces").as_object());
      plan_ = read_plan(kPlanFile);
      std::string prefix;
      for (const auto& endpoint : plan_.endpoints)
        if (endpoint.features) prefix = endpoint.features->prefix;  // a platform has one store
      source_.features = {online_.reader(prefix), spaces_};
      // A process that just started knows nothing that models which are not here could be answered by instead.
      std::shared_ptr<const Catalogue> before;
      if (host_.catalogue()->number == 0 && !source_.unfetched.empty() && files_->stat(kPlanBefore))
        before = loader_.make(read_plan(kPlanBefore), nullptr, source_);
      serve_plan(before);
    }
    if (!http_) listen_for_http();
    send_report();
  }

  // `before`: unless what is published now.
  void serve_plan(std::shared_ptr<const Catalogue> before = nullptr) REQUIRES(loading_) {
    if (!before) before = host_.catalogue();
    auto made = loader_.make(plan_, before.get(), source_);
    Lock lock(mu_);
    std::erase_if(revoked_, [&](const auto& entry) REQUIRES(loading_) { return entry.first < plan_number_; });
    for (const auto& [number, what] : revoked_) revoke(*made, what);
    host_.publish(std::move(made));
    states_ = loader_.states();
  }

  // Models that nobody asked for a while leave memory. What is known of them stays, and the next request wakes them.
  void send_to_sleep() {
    const auto now = clock_.wall().count();
    std::set<std::string> idle;
    for (const auto& endpoint : host_.catalogue()->endpoints)
      for (const auto& variant : endpoint.variants) {
        const auto last_us = std::max(variant.held->since_us, variant.counts->last_us.load());
        const auto after_us = endpoint.plan.sleep_after_us;
        if (after_us > 0 && variant.held->model && now - last_us > after_us) idle.insert(name_of(endpoint, variant));
      }
    if (idle.empty()) return;
    Lock loading(loading_);
    source_.asleep.merge(idle);
    serve_plan();
  }

  // Plans that were told, and models that are asked while they sleep.
  void load() {
    for (;;) {
      std::set<std::string> wanted;
      std::optional<json::object> plan;
      std::uint64_t number = 0;
      {
        Lock lock(mu_);
        while (!stopping_ && wanted_.empty() && !given_) lock.wait(woken_);
        if (stopping_) return;
        wanted.swap(wanted_);
        plan.swap(given_);
        number = given_number_;
      }
      if (plan) {
        attempt("plan_not_served", [&] { apply(*plan, number); });
        if (!http_) listen_for_http();  // who waits for it is told that the server is starting, if it failed
      }
      if (!wanted.empty()) attempt("models_not_woken", [&] { wake(wanted); });
    }
  }

  void wake(const std::set<std::string>& wanted) {
    const auto began = clock_.now();
    Lock loading(loading_);
    std::size_t woken = 0;
    for (const auto& variant : wanted) woken += source_.asleep.erase(variant);
    if (woken == 0) return;  // it was on its way
    serve_plan();
    log::info("models_woken", {{"variants", woken}, {"us", (clock_.now() - began).count()}});
  }

  // We may write nowhere: the supervisor keeps it, and sends it on.
  void hand_on(const LogSegment& segment) { link_.send(json::object{{"segment", encode(segment)}}); }

  void take_spaces(const json::object& told) REQUIRES(loading_) {
    std::erase_if(spaces_, [&](const auto& entry) { return !told.contains(entry.first); });
    for (const auto& space : told)
      if (!spaces_.contains(space.key()))
        spaces_.emplace(space.key(), space_of(decode<traffic::SpaceKeys>(space.value(), "keys of a space")));
  }

  void send_report() {
    std::vector<VariantState> states;
    {
      Lock lock(mu_);
      states = states_;
    }
    const auto catalogue = host_.catalogue();
    json::array variants;
    std::size_t compared_bytes = 0;
    for (const auto& state : states) {
      json::object one{{"tenant", state.tenant},   {"project", state.project}, {"endpoint", state.endpoint},
                       {"variant", state.variant}, {"version", state.version}, {"state", state.state},
                       {"reason", state.reason}};
      for (const auto& endpoint : catalogue->endpoints) {
        if (endpoint.plan.tenant != state.tenant || endpoint.plan.project != state.project ||
            endpoint.plan.name != state.endpoint)
          continue;
        for (const auto& variant : endpoint.variants) {
          if (variant.plan.name != state.variant) continue;
          const auto latency = variant.counts->latency.snapshot();
          one["requests"] = variant.counts->success.count.load();
          one["failures"] = variant.counts->fail.count.load();
          one["rows"] = variant.counts->rows.load();
          one["p50_us"] = quantile_us(latency, 0.5);
          one["p99_us"] = quantile_us(latency, 0.99);
          one["latency"] = not_empty(latency);
          if (!variant.compared || compared_bytes > kComparedBytesMax) continue;
          auto outputs = variant.compared->encoded();
          compared_bytes += outputs.size();
          one["outputs"] = std::move(outputs);
        }
      }
      variants.push_back(std::move(one));
    }
    try {
      link_.send(json::object{
          {"report", json::object{{"fingerprint", catalogue->fingerprint}, {"variants", std::move(variants)}}}});
    } catch (const Error&) {
      // The supervisor is gone, and so are we, soon.
    }
  }

  void report() {
    for (;;) {
      {
        const auto until = clock_.now() + kReportEvery;
        Lock lock(mu_);
        while (!stopping_ && clock_.now() < until) lock.wait_for(woken_, until - clock_.now());
        if (stopping_) return;
      }
      if (online_.was_replaced()) {
        log::info("online_store_replaced", {{"directory", settings_.online}});
        return link_.close();  // ends this process when its requests are answered; the next one opens the new store
      }
      attempt("models_not_sent_to_sleep", [this] { send_to_sleep(); });
      attempt("report_not_sent", [this] { send_report(); });
      attempt("watched_not_sent", [this] { watcher_.turn(*host_.catalogue()); });
    }
  }

  Link& link_;
  const WorkerSettings settings_;
  OnlineStore& online_;
  std::unique_ptr<sys::Files> files_;
  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_;
  Metrics metrics_;
  Predictions predictions_;
  Watcher watcher_;  // the reporter's own, until that has ended
  Host host_;
  Front front_;

  Mutex loading_;  // one catalogue is made at a time; before mu_
  Loader loader_ GUARDED_BY(loading_);
  Loader::Source source_ GUARDED_BY(loading_);
  traffic::Plan plan_ GUARDED_BY(loading_);
  std::uint64_t plan_number_ GUARDED_BY(loading_) = 0;  // as it was heard
  std::map<std::string, std::shared_ptr<const online::Space>> spaces_ GUARDED_BY(loading_);

  sys::Descriptor listening_;
  std::unique_ptr<net::Server> http_;
  std::unique_ptr<protocol::GrpcServer> grpc_;
  std::thread reporter_, loading_thread_;

  Mutex mu_;  // guards everything below
  std::condition_variable woken_;
  std::vector<VariantState> states_ GUARDED_BY(mu_);
  std::set<std::string> wanted_ GUARDED_BY(mu_);  // variants that sleep, and are asked
  bool stopping_ GUARDED_BY(mu_) = false;
  std::uint64_t heard_ GUARDED_BY(mu_) = 0;  // plans and revocations, in their order
  std::optional<json::object> given_ GUARDED_BY(mu_);
  std::uint64_t given_number_ GUARDED_BY(mu_) = 0;
  std::vector<std::pair<std::uint64_t, std::vector<traffic::Revoked>>> revoked_ GUARDED_BY(mu_);
};

// A model that takes too much fails by itself, rather than the machine with all that runs there.
void bound_memory(std::int64_t bytes) {
  if (bytes == 0) bytes = ::sysconf(_SC_PHYS_PAGES) / 4 * 3 * ::sysconf(_SC_PAGESIZE);
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) log::warn("memory_not_bounded", {{"bytes", bytes}});
}

}  // namespace

std::vector<std::string> readable_for(const WorkerSettings& settings) {
  std::vector<std::string> out = {settings.models,       "/proc/self", "/proc/cpuinfo", "/proc/meminfo",
                                  "/sys/devices/system", "/etc/ssl",   "/usr/lib",      "/lib",
                                  "/etc/ld.so.cache"};
  for (const auto& file : {settings.certificate_file, settings.key_file, settings.client_ca_file})
    if (!file.empty()) out.push_back(file);  // not its directory: tokens and keys lie there, too
  out.push_back(std::filesystem::canonical(settings.runtime).parent_path().string());
  return out;
}

std::string model_file(const std::string& sha256) { return sha256 + ".onnx"; }

int run_worker(sys::Descriptor end, sys::Descriptor listening, sys::Descriptor dial, CrashNote& note) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGTERM, SIG_IGN);  // the supervisor tells us by the link
  ::signal(SIGINT, SIG_IGN);
  AtWork::leave_names_in(note);
  Link link(std::move(end));
  const auto said = link.receive();
  if (!said) return 1;
  const auto settings = decode<WorkerSettings>(*said, "worker");
  bound_memory(settings.memory_bytes);
  Dialled dialled(std::move(dial));
  OnlineStore online(settings.online, settings.redis ? &dialled : nullptr);
  // Before there is a second thread: Landlock holds for this one and those it starts.
  const bool confined = confine_files(readable_for(settings));
  if (!confined && settings.require_sandbox) {
    log::error("worker_not_confined", {{"why", "this kernel has no Landlock, and require_sandbox is set"}});
    return 1;
  }
  Worker worker(link, settings, std::move(listening), note, online, confined);
  log::info("worker_confined", {{"files", confined}, {"calls", true}});
  worker.follow();
  return 0;
}

}  // namespace falaj::serve
