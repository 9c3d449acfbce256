// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "foundation/base/mutex.h"
#include "lifecycle/execute/executor.h"

namespace falaj::app {

// An executor that is made when it is first asked for something: a server whose executor cannot start yet starts
// nevertheless, and one that serves nobody starts none. Thread-safe.
class LazyExecutor final : public execute::Executor {
 public:
  using Make = std::function<std::unique_ptr<execute::Executor>()>;
  explicit LazyExecutor(Make make) : make_(std::move(make)) {}

  std::vector<execute::Node> nodes() override { return real().nodes(); }
  void start(const execute::Launch& launch) override { real().start(launch); }
  void stop(std::string_view attempt, execute::Micros grace) override { real().stop(attempt, grace); }
  std::vector<execute::Report> poll(std::uint64_t& seen, execute::Micros at_most) override {
    return real().poll(seen, at_most);
  }
  execute::LogPage logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) override {
    return real().logs(attempt, rank, offset, bytes_max);
  }
  void forget(std::string_view attempt) override { real().forget(attempt); }
  void drop_logs(std::string_view attempt) override { real().drop_logs(attempt); }
  std::optional<execute::Used> used(std::string_view attempt) override { return real().used(attempt); }

 private:
  execute::Executor& real() EXCLUDES(mu_) {
    Lock lock(mu_);
    if (!made_) made_ = make_();
    return *made_;
  }

  const Make make_;
  Mutex mu_;
  std::unique_ptr<execute::Executor> made_ GUARDED_BY(mu_);  // never changes once it is there
};

}  // namespace falaj::app
