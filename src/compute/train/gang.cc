// SPDX-License-Identifier: Apache-2.0
#include "compute/train/gang.h"

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compute/train/gang_watch.h"
#include "foundation/base/error.h"
#include "foundation/sys/random.h"

namespace falaj::train {
namespace {

// Of a wait that the watch ends when there is nobody left to wait for.
constexpr std::chrono::milliseconds kLong = std::chrono::hours(240);
constexpr std::size_t kPieceBytes = 64 << 20;  // of what is shared
constexpr std::chrono::milliseconds kRetry{500};

std::vector<std::uint8_t> store_bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string store_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

struct Gang::Rep {
  const GangPlace place;
  const sys::Clock& clock;
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<GangWatch> watch;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::vector<c10::intrusive_ptr<c10d::Work>> begun;
  sys::Micros waited{0};
  std::size_t calls = 0;  // tells the keys of one call from those of the next

  Rep(GangPlace p, const sys::Clock& c) : place(std::move(p)), clock(c) {
    const auto until = clock.now() + place.patience;
    for (;;) {
      try {
        join(std::chrono::ceil<std::chrono::milliseconds>(std::max(until - clock.now(), sys::Micros(kRetry))));
        return;
      } catch (const std::exception& e) {
        // An attempt that is about to die may still have the port, or have answered in place of ours.
        watch.reset();
        if (clock.now() >= until)
          throw Error(Code::unavailable, fmt::format("rank {} of {} did not meet the others at {}:{}: {}", place.rank,
                                                     place.ranks, place.address, place.port, first_line(e)));
      }
      std::this_thread::sleep_for(kRetry);
    }
  }

  // Without the place in the library, which it begins with.
  static std::string first_line(const std::exception& e) {
    std::string text = e.what();
    text = text.substr(0, text.find('\n'));
    const auto place = text.find(".cc:");
    const auto end = place == std::string::npos ? place : text.find("] ", place);
    return end == std::string::npos ? text : text.substr(end + 2);
  }

  void join(std::chrono::milliseconds at_most) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = place.rank == 0;
    options.waitWorkers = false;
    options.timeout = at_most;
    const auto all = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    store = c10::make_intrusive<c10d::PrefixStore>(place.name, all);
    const auto address = address_towards(place.address, place.port);
    watch = std::make_unique<GangWatch>(address);
    GangWatch::Settings settings;
    settings.rank = place.rank;
    settings.silence = place.silence;
    settings.lost = place.lost;
    if (place.rank == 0) {
      sys::RealRandom random;
      store->set("word", store_bytes(fmt::format("{:016x}{:016x} ", random.next(), random.next())));
    }
    store->set(fmt::format("place/{}", place.rank), store_bytes(watch->place()));
    settings.word = store_text(store->get("word"));
    for (std::size_t i = 0; i < place.ranks; ++i)
      settings.places.push_back(store_text(store->get(fmt::format("place/{}", i))));
    watch->start(std::move(settings), clock);
    together([&] {
      const auto gloo =
          c10d::ProcessGroupGloo::Options::create(std::chrono::ceil<std::chrono::milliseconds>(place.patience));
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
      group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(place.rank),
                                                          static_cast<int>(place.ranks), gloo);
    });
  }

  // Whatever goes wrong between ranks means that one of them is gone.
  template <class F>
  void together(F f) {
    try {
      f();
    } catch (const std::exception& e) {
      const auto why = fmt::format("another task is gone: {}", first_line(e));
      if (place.lost) place.lost(why);
      throw Error(Code::unavailable, why);
    }
  }
};

Gang::Gang(GangPlace place, const sys::Clock& clock) : rep_(std::make_unique<Rep>(std::move(place), clock)) {}
Gang::~Gang() = default;

std::size_t Gang::rank() const { return rep_->place.rank; }
std::size_t Gang::ranks() const { return rep_->place.ranks; }
sys::Micros Gang::waited() const { return rep_->waited; }

Bytes Gang::share(Bytes mine) {
  auto& rep = *rep_;
  rep.together([&] {
    const auto key = fmt::format("share/{}", rep.calls++);
    if (rank() == 0) {
      rep.store->set(key, store_bytes(std::to_string(mine.size())));
    } else {
      rep.store->wait({key}, kLong);
      mine.resize(std::stoull(store_text(rep.store->get(key))));
    }
    for (std::size_t at = 0; at < mine.size(); at += kPieceBytes) {
      const auto size = static_cast<std::int64_t>(std::min(kPieceBytes, mine.size() - at));
      std::vector<at::Tensor> piece{torch::from_blob(mine.data() + at, {size}, torch::kUInt8)};
      rep.group->broadcast(piece)->wait();
    }
  });
  return mine;
}

void Gang::begin_sum(std::span<float> values) {
  rep_->together([&] {
    std::vector<at::Tensor> one{torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())})};
    rep_->begun.push_back(rep_->group->allreduce(one));
  });
}

void Gang::finish() {
  auto& rep = *rep_;
  const auto began = rep.clock.now();
  rep.together([&] {
    for (auto& work : rep.begun) work->wait();
    rep.begun.clear();
  });
  rep.waited += rep.clock.now() - began;
}

void Gang::sum(std::span<float> values) {
  if (values.empty()) return;
  begin_sum(values);
  finish();
}

void Gang::meet() {
  auto& rep = *rep_;
  rep.together([&] {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < ranks(); ++i) keys.push_back(fmt::format("meet/{}/{}", rep.calls, i));
    ++rep.calls;
    rep.store->set(keys[rank()], store_bytes("here"));
    rep.store->wait(keys, kLong);
  });
}

void Gang::leave() {
  meet();
  // The store is rank 0's: it may only go when all have had its answer.
  float nothing = 0;
  sum({&nothing, 1});
  rep_->watch->stop();
}

}  // namespace falaj::train
