// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compute/protocol/inference.h"
#include "compute/serve/catalogue.h"
#include "compute/serve/inquiry.h"
#include "compute/serve/lane.h"
#include "compute/serve/shadows.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/thread_time.h"

namespace falaj::serve {

// Answers inference requests from the catalogue: who may ask, which endpoint, which variant. Thread-safe; a request
// stays on the thread of its loop.
class Host final : public protocol::Inference {
 public:
  // How models are called.
  struct Calls {
    std::size_t slow_threads = 0;  // for calls that take long; 0: as many as there are processors
    infer::Micros slow_from = kSlowCall;
    WorkTime worked = sys::thread_time;
  };
  // `note`: shared with who restarts this process after a crash; null when nobody does. `predictions`: names them and
  // writes them down; null: neither.
  Host(const sys::Clock& clock, CrashNote* note, Predictions* predictions, Calls calls);
  Host(const sys::Clock& clock, CrashNote* note, Predictions* predictions = nullptr)
      : Host(clock, note, predictions, Calls{}) {}
  ~Host() override;

  // What is answered from now on. Requests that wait are answered by what they were meant for.
  void publish(std::shared_ptr<Catalogue> catalogue);
  // Of what is published, at once: what a plan changes besides may take its time.
  void revoke(const std::vector<traffic::Revoked>& what);
  std::shared_ptr<const Catalogue> catalogue() const;
  // Before the loops end: refuses what waits and forgets the lanes. Each is closed on the thread of its loop.
  void close();

  void admit(const protocol::Caller& caller) const override;
  void infer(const protocol::Caller& caller, protocol::Ask ask, net::Loop& loop, protocol::Done done) override;
  void predict(const protocol::Caller& caller, protocol::Predict ask, net::Loop& loop,
               std::function<void(std::variant<protocol::Predicted, Error>)> done) override;
  bool live() const override { return true; }
  bool ready() const override { return catalogue()->number > 0; }
  bool ready(const protocol::Caller& caller, const std::string& model, const std::string& version) const override;
  protocol::Description describe(const protocol::Caller& caller, const std::string& model,
                                 const std::string& version) const override;
  std::vector<protocol::Statistics> statistics(const protocol::Caller& caller, const std::string& model,
                                               const std::string& version) const override;
  std::vector<protocol::IndexEntry> index(const protocol::Caller& caller, bool only_ready) const override;
  void load(const protocol::Caller& caller, const std::string& model) override;
  void unload(const protocol::Caller& caller, const std::string& model) override;

  // Told which variant (name_of) is asked while it sleeps, perhaps more than once; whoever it is publishes a catalogue
  // where it does not. Set before the first request.
  std::function<void(const std::string& variant)> wake;

  // Of what the caller may ask, in Prometheus' text format: names that dashboards of this field know, and ours.
  std::string metrics(const protocol::Caller& caller) const;

 private:
  Lane& lane_of(net::Loop& loop);
  std::vector<Lane*> take_over(std::shared_ptr<Catalogue> catalogue) REQUIRES(mu_);
  static void tell(const std::vector<Lane*>& lanes, const std::shared_ptr<const Catalogue>& catalogue);
  bool answer_again(Lane& lane, const ServedVariant& variant, std::unique_ptr<Inquiry>& inquiry) const;
  void give_name(Inquiry& inquiry, const ServedEndpoint& endpoint, const protocol::Caller& caller) const;
  bool recognises(const protocol::Caller& caller, std::uint64_t catalogue) const;
  const KnownCaller& authenticate(const Catalogue& catalogue, const protocol::Caller& caller) const;
  const ServedEndpoint& find(const Catalogue& catalogue, const KnownCaller& caller, const std::string& model) const;
  using PredictDone = std::function<void(std::variant<protocol::Predicted, Error>)>;
  template <class Asked, class Done>
  void await(const ServedEndpoint& endpoint, const ServedVariant& variant, const protocol::Caller& caller, Lane& lane,
             Asked ask, Done done);
  void again(const protocol::Caller& caller, protocol::Ask ask, net::Loop& loop, protocol::Done done) {
    infer(caller, std::move(ask), loop, std::move(done));
  }
  void again(const protocol::Caller& caller, protocol::Predict ask, net::Loop& loop, PredictDone done) {
    predict(caller, std::move(ask), loop, std::move(done));
  }
  void go(Lane& lane, const ServedEndpoint& endpoint, const ServedVariant& variant, const protocol::Caller& caller,
          std::unique_ptr<Inquiry> inquiry);
  void look_up(const Catalogue& catalogue, const KnownCaller& caller, const ServedEndpoint& endpoint,
               const ServedVariant& variant, protocol::Predict& ask, PredictDone& done) const;
  template <class Asked>
  const ServedVariant& choose(const ServedEndpoint& endpoint, const protocol::Caller& caller, const Asked& ask) const;

  const sys::Clock& clock_;
  CrashNote* const note_;
  Predictions* const predictions_;
  Shadows shadows_;
  const Calls calls_;
  SlowLane slow_;
  const std::uint64_t number_;  // of this host among all of the process

  mutable Mutex mu_;  // guards everything below
  std::shared_ptr<const Catalogue> catalogue_ GUARDED_BY(mu_);
  std::map<net::Loop*, std::unique_ptr<Lane>> lanes_ GUARDED_BY(mu_);
  std::atomic<std::uint64_t> published_{0};  // number of catalogue_: looked at without the lock
};

}  // namespace falaj::serve
