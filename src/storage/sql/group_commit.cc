// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/group_commit.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "foundation/base/log.h"
#include "storage/sql/dump.h"
#include "storage/sql/migrate.h"

namespace falaj::sql {

namespace {

constexpr sys::Micros kReconnectWaitMin = std::chrono::milliseconds(20);
constexpr sys::Micros kReconnectWaitMax = std::chrono::seconds(2);
constexpr sys::Micros kGatherMax = std::chrono::milliseconds(5);
// Savepoints cost a fifth of a small write, so a group does without them until one of its writes fails. Callers whose
// writes fail tend to come back, so the groups after it keep them for a while.
constexpr int kCarefulGroups = 32;
constexpr sys::Micros kFindOutWhileStoppingMax = std::chrono::seconds(10);

// Whose pen this thread has.
thread_local const void* writing_here = nullptr;

// Our own threads must outlive whatever a caller's function throws.
Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Code::internal, std::string("write failed: ") + error.what());
  } catch (...) {
    return Error(Code::internal, "write failed with something that is not an exception of ours");
  }
}

// The inside of one write. After a failed statement the write is lost even if its function goes on: PostgreSQL
// would refuse every further statement, so SQLite does here too.
class OpenWrite final : public Writer {
 public:
  OpenWrite(Connection& connection, std::vector<std::function<void()>>& publish)
      : connection_(connection), publish_(publish) {}

  using Reader::query;
  using Writer::execute;
  void query(Query query, Params params, const EachRow& each) override { run(query, params, &each); }
  std::int64_t execute(Query query, Params params) override { return run(query, params, nullptr); }
  void dump(TableSink& into) override { sql::dump(connection_, into); }
  void record(Effect effect) override { effects_.push_back(std::move(effect)); }
  void after_commit(std::function<void()> publish) override { publish_.push_back(std::move(publish)); }

  std::span<const Effect> effects() const { return effects_; }
  void throw_if_failed() const {
    if (failed_) throw *failed_;
  }

 private:
  std::int64_t run(Query query, Params params, const EachRow* each) {
    throw_if_failed();
    try {
      return connection_.run(query.text(), params, each);
    } catch (const Error& error) {
      failed_ = error;
      throw;
    }
  }

  Connection& connection_;
  std::vector<std::function<void()>>& publish_;
  std::vector<Effect> effects_;
  std::optional<Error> failed_;
};

}  // namespace

GroupCommitDatabase::GroupCommitDatabase(std::unique_ptr<Engine> engine, Metrics& metrics, Limits limits)
    : limits_(limits),
      engine_(std::move(engine)),
      probe_(metrics),
      readers_(*engine_, probe_, limits.readers_max),
      writer_(engine_->connect_writer()),
      thread_([this] { writer_loop(); }) {}

GroupCommitDatabase::~GroupCommitDatabase() { stop(); }

void GroupCommitDatabase::migrate(std::span<const Migration> migrations) {
  run_alone([&](Connection& connection) { sql::migrate(connection, migrations, clock_.wall()); });
}

void GroupCommitDatabase::set_ledger(Ledger& ledger) {
  // With the pen, so that it needs no lock there.
  run_alone([&](Connection&) {
    CHECK(!ledger_, "the ledger is set once");
    ledger_ = &ledger;
  });
}

void GroupCommitDatabase::load_into_empty(const std::function<void(TableSink&)>& fill) {
  run_alone([&](Connection& connection) {
    CHECK(!ledger_, "loading goes past the ledger, so it comes before it");
    sql::load_into_empty(connection, fill);
  });
}

void GroupCommitDatabase::scrub(std::span<const std::string_view> tables) {
  run_alone([&](Connection& connection) { connection.scrub(tables); });
}

void GroupCommitDatabase::read_erased(const std::function<void(Reader&)>& work) { readers_.read(work); }

void GroupCommitDatabase::write_erased(const Act& act, const std::function<void(Writer&)>& work) {
  CHECK(writing_here != this, "a write inside a write would wait for itself");
  Waiting waiting;
  waiting.act = &act;
  waiting.work = &work;
  if (!take_pen_if_alone()) return enqueue_and_wait(waiting);
  Waiting* const writes[] = {&waiting};
  run_group(writes);
  put_pen_down();
  if (waiting.error) throw Error(std::move(*waiting.error));
}

// Who shared the last commit will share the next one, too, and is better off in a group.
bool GroupCommitDatabase::take_pen_if_alone() {
  Lock lock(mu_);
  if (pen_taken_ || !groups_.empty() || stopping_ || last_group_ > 1) return false;
  pen_taken_ = true;
  writing_here = this;
  return true;
}

void GroupCommitDatabase::put_pen_down() {
  writing_here = nullptr;
  const bool untidy = writer_ && writer_->alive() && writer_->untidy();
  Lock lock(mu_);
  pen_taken_ = false;
  untidy_ = untidy_ || untidy;
  if (!groups_.empty() || untidy_ || stopping_) arrived_.notify_one();
}

void GroupCommitDatabase::run_alone(const std::function<void(Connection&)>& work) {
  CHECK(writing_here != this, "a write inside a write would wait for itself");
  Waiting waiting;
  waiting.alone = &work;
  enqueue_and_wait(waiting);
}

void GroupCommitDatabase::enqueue_and_wait(Waiting& waiting) {
  std::shared_ptr<Group> group;
  {
    Lock lock(mu_);
    if (stopping_) throw Error(Code::cancelled, "write refused: the database is stopping");
    if (waiting_ >= limits_.writes_waiting_max) {
      probe_.writes_refused.Increment();
      throw Error(Code::exhausted, "too many writes are waiting");
    }
    const bool alone = waiting.alone != nullptr;
    if (groups_.empty() || alone || groups_.back()->alone ||
        groups_.back()->writes.size() >= limits_.writes_per_commit_max) {
      groups_.push_back(std::make_shared<Group>());
      groups_.back()->alone = alone;
    }
    group = groups_.back();
    group->writes.push_back(&waiting);
    probe_.writes_waiting.Set(static_cast<double>(++waiting_));
    if (waiting_ >= wanted_) arrived_.notify_one();
  }
  group->done.wait();
  if (waiting.error) throw Error(std::move(*waiting.error));
}

void GroupCommitDatabase::stop() {
  Lock stop_lock(stop_mu_);
  {
    Lock lock(mu_);
    stopping_ = true;
    arrived_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// The pen, with the next group, or without one to tidy. False when there will be nothing any more.
bool GroupCommitDatabase::take_pen(std::shared_ptr<Group>& group) {
  Lock lock(mu_);
  while (pen_taken_ || (groups_.empty() && !untidy_ && !stopping_)) lock.wait(arrived_);
  if (groups_.empty() && !untidy_) return false;
  pen_taken_ = true;
  if (std::exchange(untidy_, false)) return true;
  gather(lock);
  group = std::move(groups_.front());
  groups_.pop_front();
  last_group_ = group->writes.size();
  waiting_ -= last_group_;
  probe_.writes_waiting.Set(static_cast<double>(waiting_));
  return true;
}

// Those who shared the last commit are likely to come back together. Waits for nearly as many (the last of them arrive
// while this thread wakes up), but no longer than a commit takes: the one it spares. A lone caller never waits.
void GroupCommitDatabase::gather(Lock& lock) {
  if (last_group_ <= 1 || waiting_ >= last_group_) return;
  wanted_ = last_group_ - last_group_ / 8;
  const auto until = clock_.now() + std::min(last_commit_took_, kGatherMax);
  for (auto now = clock_.now(); now < until && waiting_ < wanted_ && !stopping_; now = clock_.now())
    lock.wait_for(arrived_, until - now);
  wanted_ = 1;
}

void GroupCommitDatabase::writer_loop() {
  ::pthread_setname_np(::pthread_self(), "sql-writer");
  for (std::shared_ptr<Group> group; take_pen(group); group.reset()) {
    writing_here = this;
    if (!group) {
      if (writer_ && writer_->alive()) writer_->tidy();
    } else if (group->alone) {
      auto& waiting = *group->writes.front();
      try {
        (*waiting.alone)(writer_connection());
      } catch (...) {
        waiting.error = current_error();
      }
    } else {
      run_group(group->writes);
    }
    put_pen_down();  // before anybody wakes up, who may write again at once
    if (group) group->done.raise();
  }
}

void GroupCommitDatabase::run_group(std::span<Waiting* const> writes) {
  const bool hopeful = writes.size() == 1 || careful_groups_ == 0;
  if (careful_groups_ > 0) --careful_groups_;
  auto ran = try_together(writes, hopeful ? Apart::no : Apart::by_savepoints);
  if (ran == Ran::again && hopeful) {
    careful_groups_ = kCarefulGroups;
    ran = try_together(writes, Apart::by_savepoints);
  }
  if (ran == Ran::again)
    for (std::size_t i = 0; i < writes.size(); ++i) (void)try_together(writes.subspan(i, 1), Apart::no);
  std::size_t failed = 0;
  for (const auto* w : writes) failed += w->error.has_value();
  probe_.writes_failed.Increment(static_cast<double>(failed));
  probe_.writes.Increment(static_cast<double>(writes.size() - failed));
}

GroupCommitDatabase::Ran GroupCommitDatabase::try_together(std::span<Waiting* const> writes, Apart apart) {
  // Answers with `why` every write that has no error of its own.
  const auto fail = [&](const Error& why) {
    for (auto* w : writes)
      if (!w->error) w->error = why;
    return Ran::to_the_end;
  };
  for (auto* w : writes) {
    w->error.reset();
    w->publish.clear();
  }
  const bool several = writes.size() > 1;
  try {
    writer_connection().begin_write();
  } catch (...) {
    return fail(current_error());
  }
  bool committed = false;
  try {
    if (!run_each(writes, apart)) {
      end_transaction(false);
      return several ? Ran::again : Ran::to_the_end;
    }
    if (std::all_of(writes.begin(), writes.end(), [](const Waiting* w) { return w->error.has_value(); })) {
      end_transaction(false);
      return Ran::to_the_end;
    }
    committed = commit(writes.size());
  } catch (...) {
    const auto why = current_error();
    end_transaction(false);
    // What failed belongs to the whole group (a deferred constraint, say): alone, the innocent succeed.
    if (several && writer_ && writer_->alive()) return Ran::again;
    return fail(why);
  }
  end_transaction(committed);
  if (!committed) return fail(Error(Code::unavailable, "the database went away before the write was durable"));
  for (auto* w : writes)
    if (!w->error)
      for (auto& publish : w->publish) publish();
  return Ran::to_the_end;
}

// Runs each write's function and records it. False when one that failed cannot be taken out of the transaction alone.
bool GroupCommitDatabase::run_each(std::span<Waiting* const> writes, Apart apart) {
  for (auto* w : writes) {
    bool recorded = false;
    try {
      if (apart == Apart::by_savepoints) writer_->savepoint();
      OpenWrite open(*writer_, w->publish);
      (*w->work)(open);
      open.throw_if_failed();
      if (ledger_) {
        ledger_->append(open, *w->act, open.effects());
        recorded = true;
        open.throw_if_failed();
      }
      if (apart == Apart::by_savepoints) writer_->release_savepoint();
    } catch (...) {
      w->error = current_error();
      if (!writer_->alive()) throw Error(Code::unavailable, "the database went away during the write");
      // The ledger counts a record that would now be rolled back under it.
      if (apart == Apart::no || recorded || !writer_->in_transaction()) return false;
      writer_->rollback_to_savepoint();
    }
  }
  return true;
}

bool GroupCommitDatabase::commit(std::size_t writes) {
  const auto began = clock_.now();
  std::vector<std::function<void()>> publish;
  if (ledger_) {
    OpenWrite open(*writer_, publish);
    ledger_->seal(open);
    open.throw_if_failed();
  }
  const auto transaction = writer_->transaction();
  const bool committed = writer_->commit() || find_out(transaction);
  last_commit_took_ = clock_.now() - began;
  probe_.commit_seconds.Observe(std::chrono::duration<double>(last_commit_took_).count());
  probe_.writes_per_commit.Observe(static_cast<double>(writes));
  return committed;
}

void GroupCommitDatabase::end_transaction(bool committed) {
  if (!committed && writer_) writer_->rollback();
  if (ledger_) ledger_->committed(committed);
}

// The connection broke while committing. The callers of this commit wait until the truth is known; those behind
// them are told at once that the database is gone.
bool GroupCommitDatabase::find_out(const std::string& transaction) {
  log::warn("sql_commit_unknown", {{"transaction", transaction}});
  auto wait = kReconnectWaitMin;
  std::optional<sys::Micros> give_up;
  while (true) {
    try {
      if (const auto committed = engine_->find_out(writer_connection(), transaction)) {
        log::warn("sql_commit_found_out", {{"transaction", transaction}, {"committed", *committed}});
        return *committed;
      }
    } catch (const Error& error) {
      refuse_waiting(error);
    }
    Lock lock(mu_);
    if (stopping_ && !give_up) give_up = clock_.now() + kFindOutWhileStoppingMax;
    if (give_up && clock_.now() > *give_up)
      throw Error(Code::deadline, "the database went away during the commit: the write may or may not have happened");
    lock.wait_for(arrived_, wait);
    wait = std::min(wait * 2, kReconnectWaitMax);
  }
}

void GroupCommitDatabase::refuse_waiting(const Error& why) {
  std::deque<std::shared_ptr<Group>> refused;
  {
    Lock lock(mu_);
    refused.swap(groups_);
    waiting_ = 0;
  }
  for (const auto& group : refused) {
    for (auto* w : group->writes) w->error = why;
    group->done.raise();
  }
}

Connection& GroupCommitDatabase::writer_connection() {
  if (writer_ && writer_->alive()) return *writer_;
  writer_.reset();
  // A server that is down is asked at growing intervals; in between, the answer is known.
  if (clock_.now() < reconnect_at_) throw Error(Code::unavailable, "the database is gone");
  try {
    writer_ = engine_->connect_writer();
  } catch (const Error& error) {
    reconnect_wait_ = std::clamp(reconnect_wait_ * 2, kReconnectWaitMin, kReconnectWaitMax);
    reconnect_at_ = clock_.now() + reconnect_wait_;
    log::warn("sql_reconnect_failed", {{"reason", error.what()}});
    throw Error(Code::unavailable, "the database is gone");
  }
  reconnect_wait_ = sys::Micros(0);
  probe_.reconnects.Increment();
  return *writer_;
}

std::unique_ptr<Database> open_sqlite(const std::string& path, Metrics& metrics, Limits limits) {
  return std::make_unique<GroupCommitDatabase>(make_sqlite_engine(path), metrics, limits);
}

}  // namespace falaj::sql
