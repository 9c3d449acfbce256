// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "storage/sql/connection.h"
#include "storage/sql/probe.h"
#include "storage/sql/reader_pool.h"
#include "storage/sql/signal.h"

namespace falaj::sql {

// A Database over any engine. Whoever has the pen writes: a thread of its own, or a caller who comes alone, since
// waking a thread and being woken by it costs as much as a small write. Writers that arrive while the pen is held
// gather in a group; the thread runs the group in one transaction, with one durable commit, and wakes it by one call.
//
//   callers --enqueue--> forming group --taken whole--> BEGIN { work audit }* seal COMMIT --> wake
//   a lone caller -----------------------------------> BEGIN   work audit    seal COMMIT
//
// When a write of the group fails, the transaction is rolled back and run again with a savepoint around each write, so
// that only the guilty is undone.
class GroupCommitDatabase final : public Database {
 public:
  GroupCommitDatabase(std::unique_ptr<Engine> engine, Metrics& metrics, Limits limits);
  ~GroupCommitDatabase() override;

  void migrate(std::span<const Migration> migrations) override;
  void set_ledger(Ledger& ledger) override;
  void write_erased(const Act& act, const std::function<void(Writer&)>& work) override;
  void read_erased(const std::function<void(Reader&)>& work) override;
  void load_into_empty(const std::function<void(TableSink&)>& fill) override;
  void scrub(std::span<const std::string_view> tables) override;
  std::string_view engine() const override { return engine_->name(); }
  void stop() override;

 private:
  // One waiting write; lives on its caller's stack.
  struct Waiting {
    const Act* act = nullptr;
    const std::function<void(Writer&)>* work = nullptr;
    const std::function<void(Connection&)>* alone = nullptr;  // instead of `work`: gets the connection itself
    std::optional<Error> error;
    std::vector<std::function<void()>> publish;
  };
  // Writes that commit together. All its callers sleep on `done`, so one wake-up reaches them all.
  struct Group {
    std::vector<Waiting*> writes;
    bool alone = false;
    Signal done;
  };
  enum class Ran { to_the_end, again };    // each write has its answer, or all must run again
  enum class Apart { no, by_savepoints };  // whether a write that fails can be undone without its neighbours

  void enqueue_and_wait(Waiting& waiting);
  void run_alone(const std::function<void(Connection&)>& work);
  bool take_pen_if_alone();
  void put_pen_down();

  void writer_loop();
  bool take_pen(std::shared_ptr<Group>& group);

  // By who has the pen:
  void run_group(std::span<Waiting* const> writes);
  void gather(Lock& lock) REQUIRES(mu_);
  Ran try_together(std::span<Waiting* const> writes, Apart apart);
  bool run_each(std::span<Waiting* const> writes, Apart apart);
  bool commit(std::size_t writes);
  void end_transaction(bool committed);
  bool find_out(const std::string& transaction);
  void refuse_waiting(const Error& why);
  Connection& writer_connection();

  const Limits limits_;
  const std::unique_ptr<Engine> engine_;
  const sys::RealClock clock_;
  Probe probe_;
  ReaderPool readers_;

  // Belong to who has the pen:
  std::unique_ptr<Connection> writer_;
  Ledger* ledger_ = nullptr;
  sys::Micros reconnect_at_{0}, reconnect_wait_{0};
  int careful_groups_ = 0;           // how many more groups keep their writes apart from the start
  sys::Micros last_commit_took_{0};  // with its seal

  Mutex mu_;  // guards everything below
  bool pen_taken_ GUARDED_BY(mu_) = false;
  bool untidy_ GUARDED_BY(mu_) = false;         // the thread is to tidy the connection when nobody writes
  std::size_t last_group_ GUARDED_BY(mu_) = 0;  // writes in the last group
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Group>> groups_ GUARDED_BY(mu_);
  std::size_t waiting_ GUARDED_BY(mu_) = 0;
  std::size_t wanted_ GUARDED_BY(mu_) = 1;  // how many must wait to wake the writer
  bool stopping_ GUARDED_BY(mu_) = false;

  Mutex stop_mu_;  // one stop at a time; taken before mu_
  std::thread thread_;
};

}  // namespace falaj::sql
