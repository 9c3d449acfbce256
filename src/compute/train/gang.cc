// SPDX-License-Identifier: Apache-2.0
#include "compute/train/gang.h"

#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compute/train/gang_watch.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/random.h"

namespace falaj::train {
namespace {

// Of a wait that the watch ends when there is nobody left to wait for.
constexpr std::chrono::milliseconds kLong = std::chrono::hours(240);
constexpr std::size_t kPieceBytes = 64 << 20;  // of what is shared
constexpr std::chrono::milliseconds kRetry{500}, kLook{20}, kLookIdly{200}, kFarewell{2000};
// Of one try to reach the place where all meet: nothing else is looked at meanwhile.
constexpr std::chrono::milliseconds kReach{2000};
constexpr std::size_t kNobody = ~std::size_t{0};

std::vector<std::uint8_t> store_bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string store_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// One that has come: "task address port pid namespace".
struct Arrival {
  std::size_t task = 0;
  std::string address, port, processes;  // processes: within which its pid means something
  pid_t pid = 0;

  std::string text() const { return fmt::format("{} {} {} {} {}", task, address, port, pid, processes); }
  static Arrival parse(std::string_view text) {
    const auto words = split(text, ' ');
    if (words.size() != 5) throw Error(Code::corrupt, "another task said something else than where it is");
    Arrival out{static_cast<std::size_t>(parse_int(words[0]).value_or(0)), std::string(words[1]), std::string(words[2]),
                std::string(words[4]), static_cast<pid_t>(parse_int(words[3]).value_or(0))};
    return out;
  }
};

std::string own_processes() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string() + "?";
}

// Without the place in the library, which it begins with.
std::string first_line(const std::exception& e) {
  std::string text = e.what();
  text = text.substr(0, text.find('\n'));
  const auto place = text.find(".cc:");
  const auto end = place == std::string::npos ? place : text.find("] ", place);
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

struct Gang::Rep {
  const GangPlace place;
  const sys::Clock& clock;
  const std::size_t ranks;
  std::size_t rank = kNobody;
  bool holds_place = false;  // where all meet
  std::string word;
  std::vector<Arrival> members;
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<GangWatch> watch;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
#ifdef USE_C10D_NCCL
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> gpus;
#endif
  std::vector<c10::intrusive_ptr<c10d::Work>> begun;
  sys::Micros waited{0};
  std::size_t calls = 0;  // tells the keys of one call from those of the next

  Rep(GangPlace p, const sys::Clock& c) : place(std::move(p)), clock(c), ranks(place.tasks - place.spares) {
    living = this;
    std::set_terminate(on_terminate);
    const auto until = clock.now() + place.patience;
    for (;;) {
      try {
        join(until);
        return;
      } catch (const Error& e) {
        if (e.code() == Code::cancelled) throw;
        give_up_after(until, e);
      } catch (const std::exception& e) {
        // An attempt that is about to die may still have the port, or have answered in place of ours.
        give_up_after(until, e);
      }
      watch.reset();
      store.reset();
      throw_if_stopped();
      std::this_thread::sleep_for(kRetry);
    }
  }

  ~Rep() { living = nullptr; }
  Rep(const Rep&) = delete;
  Rep& operator=(const Rep&) = delete;

  void give_up_after(sys::Micros until, const std::exception& e) const {
    if (clock.now() >= until)
      throw Error(Code::unavailable, fmt::format("task {} of {} did not meet the others at {}:{}: {}", place.task,
                                                 place.tasks, place.address, place.port, first_line(e)));
  }
  void throw_if_stopped() const {
    if (place.must_stop && place.must_stop()) throw Error(Code::cancelled, "told to stop before all had met");
  }
  std::chrono::milliseconds left(sys::Micros until) const {
    return std::chrono::ceil<std::chrono::milliseconds>(std::max(until - clock.now(), sys::Micros(kRetry)));
  }

  // ---- Meeting.
  void join(sys::Micros until) {
    const auto address = address_towards(place.address, place.port);
    open_store(until, address);
    watch = std::make_unique<GangWatch>(address);
    const auto text = watch->place();
    const auto at = split(text, ' ');
    const Arrival mine{place.task, std::string(at[0]), std::string(at[1]), own_processes(), ::getpid()};
    store->set(fmt::format("arrival/{}", place.task), store_bytes(mine.text()));
    if (holds_place) choose(until);
    read_members(until);
    if (rank == kNobody) return;
    GangWatch::Settings settings;
    settings.rank = rank;
    for (const auto& member : members) settings.places.push_back(member.address + " " + member.port);
    settings.word = word;
    settings.silence = place.silence;
    settings.lost = [this](std::size_t silent, const std::string& why) {
      end(members[silent]);
      lose(why);
    };
    watch->start(std::move(settings), clock);
    together([&] {
      const auto gloo =
          c10d::ProcessGroupGloo::Options::create(std::chrono::ceil<std::chrono::milliseconds>(place.patience));
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
      group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank), static_cast<int>(ranks), gloo);
#ifdef USE_C10D_NCCL
      if (place.gpu)
        gpus = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("gpus", store),
                                                           static_cast<int>(rank), static_cast<int>(ranks));
#endif
    });
  }

  // The place is task 0's. When it may be gone, whoever is on its machine and first has it.
  void open_store(sys::Micros until, const std::string& own_address) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.waitWorkers = false;
    options.timeout = std::min(left(until), kReach);
    const bool could = place.task == 0 || (!place.before.empty() && own_address == numeric_address(place.address));
    c10::intrusive_ptr<c10d::TCPStore> all;
    holds_place = false;
    if (could) {
      options.isServer = true;
      try {
        all = c10::make_intrusive<c10d::TCPStore>(place.address, options);
        holds_place = true;
      } catch (const std::exception&) {
        if (place.before.empty()) throw;
        options.isServer = false;  // somebody was faster
      }
    }
    if (!all) all = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    all->setTimeout(left(until));
    store = c10::make_intrusive<c10d::PrefixStore>(place.name, all);
  }

  // Those who came first: myself, then by their number.
  void choose(sys::Micros until) {
    const auto own = fmt::format("arrival/{}", place.task);
    std::map<std::size_t, std::string> came{{place.task, store_text(store->get(own))}};
    look_until(until, kLook, [&] {
      for (std::size_t task = 0; task < place.tasks && came.size() < ranks; ++task) {
        const auto key = fmt::format("arrival/{}", task);
        if (!came.contains(task) && store->check({key})) came[task] = store_text(store->get(key));
      }
      return came.size() == ranks;
    });
    sys::RealRandom random;
    auto text = fmt::format("{:016x}{:016x}\n{}", random.next(), random.next(), came[place.task]);
    for (const auto& [task, arrival] : came)
      if (task != place.task) text += "\n" + arrival;
    store->set("members", store_bytes(text));
  }

  void read_members(sys::Micros until) {
    look_until(until, kLook, [&] { return store->check({"members"}); });
    const auto text = store_text(store->get("members"));
    const auto lines = split(text, '\n');
    if (lines.size() != ranks + 1) throw Error(Code::unavailable, "the others are another number of tasks");
    word = lines[0];
    if (word == place.before) throw Error(Code::unavailable, "what is left of the gang before is still there");
    members.clear();
    rank = kNobody;
    for (std::size_t i = 0; i < ranks; ++i) {
      members.push_back(Arrival::parse(lines[i + 1]));
      if (members[i].task == place.task) rank = i;
    }
  }

  template <class F>
  void look_until(sys::Micros until, std::chrono::milliseconds every, F there) {
    while (!there()) {
      throw_if_stopped();
      if (clock.now() >= until) throw Error(Code::unavailable, "not all of them came");
      std::this_thread::sleep_for(every);
    }
  }

  // ---- Losing one.
  // One that hangs could wake up when another has its place, and it may hold the place where all meet.
  void end(const Arrival& silent) const {
    const auto& mine = members[rank];
    if (place.spares > 0 && silent.address == mine.address && silent.processes == mine.processes && silent.pid > 1)
      ::kill(silent.pid, SIGKILL);
  }
  void lose(const std::string& why) const {
    if (place.lost) place.lost({why, word});
  }

  // c10d's store has a thread of its own, which lets the error of a connection that breaks end the whole process: what
  // it means is that the one who held the place where all meet is gone.
  static inline std::atomic<const Rep*> living{nullptr};
  [[noreturn]] static void on_terminate() {
    if (const auto thrown = std::current_exception(); const Rep* rep = living.load()) {
      try {
        if (thrown) std::rethrow_exception(thrown);
      } catch (const std::system_error& e) {
        rep->lose(fmt::format("the place where all meet is gone: {}", first_line(e)));
      } catch (...) {  // a fault of ours: seen as one
      }
    }
    std::abort();
  }

  // Whatever goes wrong between ranks means that one of them is gone.
  template <class F>
  void together(F f) {
    const auto began = clock.now();
    try {
      f();
    } catch (const std::exception& e) {
      const auto why = fmt::format("another task is gone: {}", first_line(e));
      lose(why);
      throw Error(Code::unavailable, why);
    }
    waited += clock.now() - began;
  }

  static at::Tensor floats(std::span<const float> values) {
    return torch::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())});
  }
};

Gang::Gang(GangPlace place, const sys::Clock& clock) : rep_(std::make_unique<Rep>(std::move(place), clock)) {}

Gang::~Gang() {
  if (!rep_->holds_place || rep_->place.spares == 0) return;
  // Those that stand by ask here whether it is over.
  try {
    const auto gone = [&](std::size_t task) {
      return task == rep_->place.task || !rep_->store->check({fmt::format("arrival/{}", task)}) ||
             rep_->store->check({fmt::format("gone/{}", task)});
    };
    rep_->look_until(rep_->clock.now() + kFarewell, kLook, [&] {
      for (std::size_t task = 0; task < rep_->place.tasks; ++task)
        if (!gone(task)) return false;
      return true;
    });
  } catch (const std::exception&) {
    // They notice that nobody answers any more.
  }
}

bool Gang::is_spare() const { return rep_->rank == kNobody; }
std::size_t Gang::rank() const { return rep_->rank; }
std::size_t Gang::ranks() const { return rep_->ranks; }
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
    std::vector<at::Tensor> one{Rep::floats(values)};
    rep_->begun.push_back(rep_->group->allreduce(one));
  });
}

void Gang::begin_sum_on_gpu(std::span<float> values) {
  rep_->together([&] {
    std::vector<at::Tensor> one{torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())},
                                                 torch::TensorOptions().device(torch::kCUDA, 0))};
#ifdef USE_C10D_NCCL
    rep_->begun.push_back(rep_->gpus->allreduce(one));
#else
    rep_->begun.push_back(rep_->group->allreduce(one));
#endif
  });
}

void Gang::begin_gather(BytesView mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * ranks()) throw Error(Code::internal, "gathering needs a place for everybody's");
  rep_->together([&] {
    const auto size = static_cast<std::int64_t>(mine.size());
    std::vector<at::Tensor> in{torch::from_blob(const_cast<std::byte*>(mine.data()), {size}, torch::kUInt8)};
    std::vector<std::vector<at::Tensor>> out(1);
    for (std::size_t i = 0; i < ranks(); ++i)
      out[0].push_back(torch::from_blob(all.data() + i * mine.size(), {size}, torch::kUInt8));
    rep_->begun.push_back(rep_->group->allgather(out, in));
  });
}

void Gang::begin_send(std::size_t to, int tag, std::span<const float> values) {
  rep_->together([&] {
    std::vector<at::Tensor> one{Rep::floats(values)};
    rep_->begun.push_back(rep_->group->send(one, static_cast<int>(to), tag));
  });
}

void Gang::finish() {
  rep_->together([&] {
    for (auto& work : rep_->begun) work->wait();
    rep_->begun.clear();
  });
}

void Gang::send(std::size_t to, int tag, std::span<const float> values) {
  rep_->together([&] {
    std::vector<at::Tensor> one{Rep::floats(values)};
    rep_->group->send(one, static_cast<int>(to), tag)->wait();
  });
}

void Gang::receive(std::size_t from, int tag, std::span<float> values) {
  rep_->together([&] {
    std::vector<at::Tensor> one{Rep::floats(values)};
    rep_->group->recv(one, static_cast<int>(from), tag)->wait();
  });
}

std::size_t Gang::receive_any(int tag, std::span<float> values) {
  std::size_t from = 0;
  rep_->together([&] {
    std::vector<at::Tensor> one{Rep::floats(values)};
    const auto work = rep_->group->recvAnysource(one, tag);
    work->wait();
    from = static_cast<std::size_t>(work->sourceRank());
  });
  return from;
}

void Gang::sum(std::span<float> values) {
  if (values.empty()) return;
  begin_sum(values);
  finish();
}

void Gang::unite(std::span<float> values) {
  if (values.empty()) return;
  rep_->together([&] {
    std::vector<at::Tensor> bits{
        torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, torch::kInt32)};
    rep_->group->allreduce(bits)->wait();
  });
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

void Gang::stand_by() {
  auto& rep = *rep_;
  if (rep.place.spares == 0) return;
  try {
    rep.look_until(rep.clock.now() + kLong, kLookIdly, [&] { return rep.store->check({"over"}); });
    rep.store->set(fmt::format("gone/{}", rep.place.task), store_bytes("gone"));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    const auto why = fmt::format("the place where all meet is gone: {}", first_line(e));
    rep.lose(why);
    throw Error(Code::unavailable, why);
  }
}

void Gang::over() {
  if (rep_->place.spares > 0) rep_->together([&] { rep_->store->set("over", store_bytes("over")); });
}

}  // namespace falaj::train
