// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/reader_pool.h"

#include "storage/sql/dump.h"

namespace falaj::sql {

namespace {

class OpenRead final : public Reader {
 public:
  explicit OpenRead(Connection& connection) : connection_(connection) {}
  using Reader::query;
  void query(Query query, Params params, const EachRow& each) override { connection_.run(query.text(), params, &each); }
  void dump(TableSink& into) override { sql::dump(connection_, into); }

 private:
  Connection& connection_;
};

}  // namespace

class ReaderPool::Lease {
 public:
  explicit Lease(ReaderPool& pool) : pool_(pool), connection_(pool.take()) { pool_.probe_.readers_in_use.Increment(); }
  ~Lease() {
    connection_->rollback();  // nothing was written: the cheapest way out of the snapshot
    pool_.probe_.readers_in_use.Decrement();
    pool_.give_back(std::move(connection_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Connection& operator*() { return *connection_; }

 private:
  ReaderPool& pool_;
  std::unique_ptr<Connection> connection_;
};

void ReaderPool::read(const std::function<void(Reader&)>& work) {
  Lease lease(*this);
  (*lease).begin_read();
  OpenRead reader(*lease);
  work(reader);
}

std::unique_ptr<Connection> ReaderPool::take() {
  {
    Lock lock(mu_);
    while (in_use_ >= limit_) lock.wait(returned_);
    ++in_use_;
    while (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->alive()) return connection;
      probe_.reconnects.Increment();
    }
  }
  try {
    return engine_.connect_reader();
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

void ReaderPool::give_back(std::unique_ptr<Connection> connection) {
  Lock lock(mu_);
  --in_use_;
  if (connection && connection->alive()) idle_.push_back(std::move(connection));
  returned_.notify_one();
}

}  // namespace falaj::sql
