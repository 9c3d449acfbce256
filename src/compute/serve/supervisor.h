// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "compute/serve/dial.h"
#include "compute/serve/link.h"
#include "compute/serve/quarantine.h"
#include "compute/serve/space_keys.h"
#include "compute/serve/spool.h"
#include "compute/serve/worker.h"
#include "foundation/base/mutex.h"
#include "foundation/client/api_client.h"
#include "foundation/crypto/sign.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/random.h"
#include "lifecycle/traffic/plan.h"

namespace falaj::serve {

// In the state directory; held by the program that serves from it, as long as it does.
inline constexpr const char* kLockFile = "lock";

struct SupervisorSettings {
  std::string name;  // of this server among all that follow the control plane
  std::string url;   // where clients find us, as the control plane is told; "": as we listen
  client::Target control;
  std::string control_file;  // when given: holds the control plane's address, which may be another after its restart
  std::string state;         // directory: the last plan and its models
  std::string public_key;    // hex; "": the first that the control plane tells is kept
  WorkerSettings worker;
  std::uint16_t port = 0;
  std::optional<online::RedisOptions> redis;  // where features are, unless in files
};

// Follows the control plane's plan, keeps what it names on this machine, and keeps a worker alive that serves it. Holds
// the listening socket, so that a new worker goes on where one crashed; holds no model. When the control plane is away
// the last plan goes on. A model that cannot be had keeps nothing else of a plan back.
class Supervisor {
 public:
  Supervisor(SupervisorSettings settings, const sys::Clock& clock);
  ~Supervisor();
  std::uint16_t port() const { return port_; }
  using Reasons = std::map<std::string, std::string>;  // by digest: why
  Reasons unfetched() const;                           // models of the plan on this machine that are not on it
  // Keeps a worker until stop(), and lets its requests finish then.
  void keep_worker();
  void stop();

 private:
  // A plan as the control plane told it, before its models are here.
  struct Told {
    traffic::Plan plan;
    std::string fingerprint, public_key;
  };
  void follow();
  void hear_plan(const json::object& said);
  void take_plans();
  void take_plan(client::ApiClient& control, const Told& told);
  void trust(const Told& told);
  Reasons fetch_models(client::ApiClient& control, const traffic::Plan& plan);
  void fetch(client::ApiClient& control, const std::string& sha256, std::int64_t bytes);
  std::shared_ptr<const Told> plan_on_disk();
  void write_plan(const traffic::Plan& plan, bool whole);
  void forget_models(const traffic::Plan& plan);
  bool may_take() REQUIRES(mu_);
  void run_worker_once();
  void note_end(int status, const CrashNote& note);
  void tell_plan(Link& link) REQUIRES(mu_);
  static void tell_revoked(Link& link, const std::vector<traffic::Revoked>& what);
  void send_reports();
  void take_segment(const json::value& segment);
  void send_segments();
  void send_batch(client::ApiClient& control, const std::vector<json::object>& segments);
  void tell_lost(const json::object& segment);
  void renew_worker_for_certificate();
  bool pause(std::int64_t micros);  // false when stopping
  client::Target target() const;

  SupervisorSettings settings_;  // constant after construction
  const sys::Clock& clock_;
  std::unique_ptr<sys::Files> files_;
  sys::RealRandom random_;
  Spool spool_;
  sys::Descriptor listening_, grpc_place_;
  std::uint16_t port_ = 0;
  std::optional<crypto::PublicKey> key_;  // the taker's own
  SpaceKeyRing ring_;

  mutable Mutex mu_;  // guards everything below
  std::condition_variable woken_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::string fingerprint_ GUARDED_BY(mu_);                // of the plan on disk; "" none
  std::shared_ptr<const Told> told_ GUARDED_BY(mu_);       // the last; on disk, or to be
  std::vector<traffic::Revoked> revoked_ GUARDED_BY(mu_);  // since the plan on disk
  Link* link_ GUARDED_BY(mu_) = nullptr;                   // to the worker, while there is one
  Reasons unfetched_ GUARDED_BY(mu_);                      // models of the plan on disk that are not
  sys::Micros fetch_again_ GUARDED_BY(mu_){0}, fetch_pause_ GUARDED_BY(mu_){0};
  Quarantine quarantine_ GUARDED_BY(mu_);
  std::vector<std::uint64_t> certificate_ GUARDED_BY(mu_);  // the files that the worker was given
  json::object report_ GUARDED_BY(mu_);
  bool report_is_news_ GUARDED_BY(mu_) = false;  // another plan is served than the last report said

  std::thread following_, taking_, reporting_, sending_;
};

}  // namespace falaj::serve
