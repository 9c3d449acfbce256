// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "foundation/net/asio.h"
#include "foundation/net/body_pipe.h"
#include "foundation/net/host_rule.h"
#include "foundation/net/parse.h"
#include "foundation/net/probe.h"
#include "foundation/net/server.h"
#include "foundation/net/worker_pool.h"

namespace falaj::net {

class Session;

// What all connections of a server share.
struct Shared {
  Shared(const std::string& listen_host, const ServerLimits& l, Service& s, const sys::Clock& c, sys::Ids& i,
         Metrics& m)
      : limits(l),
        hosts(listen_host, l.host_names),
        service(s),
        clock(c),
        ids(i),
        probe(m),
        workers(l.worker_threads, 2 * l.requests_max, probe.queued),
        readers(l.worker_threads, l.requests_max, probe.queued) {}

  const ServerLimits limits;
  const HostRule hosts;
  Service& service;
  const sys::Clock& clock;
  sys::Ids& ids;
  Probe probe;
  std::atomic<std::size_t> requests{0};
  std::atomic<bool> draining{false};
  WorkerPool workers;  // handlers, and the sources of streamed responses
  WorkerPool readers;  // handlers that read a long body: slow clients hold these and no others

  Mutex mu;  // guards `connections`
  std::condition_variable none_left;
  std::size_t connections GUARDED_BY(mu) = 0;

  std::int64_t now_us() const { return clock.now().count(); }
};

// One thread and the connections it serves; they never leave it.
struct IoThread final : Loop {
  explicit IoThread(std::size_t number) : number(number) {}
  std::size_t index() const override { return number; }
  void post(std::function<void()> work) override { asio::post(context, std::move(work)); }
  void after(std::int64_t micros, std::function<void()> work) override;

  const std::size_t number;
  asio::io_context context{1};
  std::vector<Session*> sessions;
  std::string date;  // of this second
  std::thread thread;
};

// Bytes received and not yet used. Starts small, because most connections are idle.
class Inbox {
 public:
  std::string_view view() const { return {bytes_.get() + begin_, end_ - begin_}; }
  bool empty() const { return begin_ == end_; }
  void consume(std::size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  asio::mutable_buffer space(std::size_t wanted);  // at least one byte, usually `wanted`
  void commit(std::size_t n) { end_ += n; }
  void shrink();  // gives back what an empty one need not hold

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

// How long a client may take over a body: it starts with `most_us`, waiting spends it, and every byte earns some back.
struct Patience {
  std::int64_t left_us = 0, most_us = 0, bytes_per_second_min = 1;
  void spend(std::int64_t waited_us, std::size_t bytes) {
    const auto earned = static_cast<std::int64_t>(bytes) * 1'000'000 / bytes_per_second_min;
    left_us = std::min(most_us, left_us - waited_us + earned);
  }
};

// One connection, from accept to close: a coroutine on its I/O thread.
class Session {
 public:
  Session(Socket socket, std::shared_ptr<asio::ssl::context> tls, std::string address, Shared& shared, IoThread& home);
  ~Session();

  static Task<void> run(std::unique_ptr<Session> self);

  // From the I/O thread's tick and from stop.
  void expire_if_due(std::int64_t now_us);
  void close_if_idle();
  void kill();

 private:
  enum class Next { keep, close, linger };
  enum class Trouble { none, gone, slow, malformed, too_large };
  struct Incoming {  // the body being read
    BodyKind kind = BodyKind::none;
    std::uint64_t left = 0, received = 0, bytes_max = 0;
    ChunkDecoder chunks;
    bool ended = true, continue_owed = false;
    Trouble trouble = Trouble::none;
  };

  Task<bool> begin();
  Task<Next> exchange();
  Task<bool> read_head();
  Task<Next> answer(Admission& admission);
  Task<std::size_t> read_body(std::span<std::byte> out);
  Task<std::size_t> receive(asio::mutable_buffer into);
  Task<void> collect_body(std::uint64_t most);
  Task<void> run_on_worker(WorkerPool& pool, const Admission& admission, BodyReader& body);
  Task<void> run_streaming(const Admission& admission);
  Task<Next> respond();
  Task<bool> send(std::string_view first, std::string_view second = {});
  Task<bool> send_stream(StreamBody& body);
  Task<Next> drop_rest_of_body();
  Task<void> linger();

  Next finish(int status, Next next);
  Admission admit() noexcept;
  void begin_later(const Admission& admission) noexcept;
  bool call(const Admission& admission, BodyReader& body, bool must_not_wait) noexcept;
  Response refusal(int status, Code code, std::string_view why);
  Response trouble_response();
  std::optional<Response> check_names();
  void release_memory();
  void fail_pipe();
  bool is_abandoned() const;  // by any thread
  void wake();

  Shared& shared_;
  IoThread& home_;
  std::size_t slot_;  // in home_.sessions
  Stream stream_;
  const int descriptor_;
  Signal signal_;
  std::int64_t deadline_us_ = 0;  // of the operation under way; 0 = none
  bool expired_ = false;
  bool idle_ = false;
  std::atomic<bool> killed_ = false;
  bool cancel_read_on_wake_ = false;
  bool replied_ = false;  // to a request that is answered later

  Inbox inbox_;
  HeadScanner scanner_;
  Head head_;
  Message message_;
  Incoming body_;
  Patience receiving_{}, sending_{};
  std::string body_text_;  // a body no longer than a piece
  std::optional<BodyPipe> pipe_;
  Response response_;
  std::string out_;
  std::int64_t started_us_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace falaj::net
