// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/features/online_views.h"

namespace falaj::features {

struct ViewChecks;

struct PushLimits {
  std::size_t rows_max = 10'000;         // of one push
  std::int64_t waiting_max = 5'000'000;  // rows of a dataset that are in no version yet
  std::size_t queued_max = 4096;         // pushes on their way into the store
};

using JsonRows = std::vector<json::object>;
struct Push {
  std::string id;                        // the same push again is one push; "" = every one counts
  std::optional<std::int64_t> as_of_us;  // what the time is, to play history back; now when absent
};
struct Taken {
  std::int64_t rows = 0, sequence = 0;
  bool again = false;  // it had been taken before, and nothing was done
};

// Rows of a dataset that are known online at once. Thread-safe.
//
// What they mean to each view is computed first, so that rows which no view could take are refused. Then they are made
// durable, in the database and in order, and one thread brings them into the store in that order, many pushes to a
// commit. After a kill everything that is in no version is brought there again: a record knows what it has seen.
class Pushes {
 public:
  // All of them outlive this.
  Pushes(sql::Database& database, OnlineViews& views, data::Datasets& datasets, const crypto::Key& key,
         const sys::Clock& clock, Metrics& metrics, PushLimits limits = {});
  ~Pushes();
  void start();  // brings again what a kill may have left behind; before the first push
  void stop();   // finishes what was taken

  // All rows or none; known online when it returns. Errors: invalid with the row and the column, exhausted.
  Taken push(const Where& where, const std::string& dataset, const JsonRows& rows, const Push& how,
             const sql::Act& act);
  // What was pushed so far becomes a version of the dataset. Nothing when there is nothing.
  std::optional<data::Version> flush(const Where& where, const std::string& dataset, const sql::Act& act);
  // Runs `begin` while no push to the dataset is on its way; when that says that there is a new space, what is in no
  // version is brought there before pushes go on.
  void pause(const Where& where, const std::string& dataset, const std::function<bool()>& begin);
  std::vector<PushedSet> sets();
  std::int64_t waiting(const Where& where, const std::string& dataset);  // rows that are in no version
  void forget_ids(const sql::Act& act);                                  // of pushes that nobody repeats any more

 private:
  struct Typed;    // rows of a push by the dataset's schema
  struct Changes;  // what they are to one view
  struct Queued;
  class Rooms;
  class Applying;

  Typed typed(const data::DatasetSpec& spec, const std::string& dataset, const JsonRows& rows) const;
  Changes evaluate(const Typed& rows, std::shared_ptr<const Definition> definition);
  void need_room(const Where& where, const std::string& dataset);
  using Name = std::tuple<std::string, std::string, std::string>;
  static Name name_of(const Where& where, const std::string& dataset);
  void replay(const Where& where, const std::string& dataset);
  void loop();
  void apply_until_done(std::vector<Queued>& pushes);
  // What a view that is online expects of rows, and they do not keep.
  void check(const Typed& rows, const Definition& definition, std::int64_t now_us,
             std::vector<std::pair<std::string, ViewChecks>>& failed);
  void check_dataset(const Where& where, const Typed& rows, std::int64_t now_us, const sql::Act& act);
  void refuse(const Where& where, std::vector<std::pair<std::string, ViewChecks>>& failed, const sql::Act& act);
  void apply(std::vector<Queued>& pushes);
  void evaluate_missing(std::span<Queued*> pushes, const std::shared_ptr<const Definition>& definition);
  void enqueue(Queued queued);
  void wait_until_applied(const Name& name, std::int64_t sequence);
  void wait_until_idle(const Name& name);
  Bytes header(const Where& where, const std::string& dataset, std::int64_t sequence) const;
  JsonRows open(const Where& where, const std::string& dataset, const PushedRows& rows) const;
  std::int64_t last_sequence(const Where& where, const PushedSet& set);  // of the epochs that are being flushed
  bool has_upload(const Where& where, const PushedSet& set);
  void put_parts(const Where& where, const PushedSet& set, const sql::Act& act);
  PushedSet begin_flush(const Where& where, const std::string& dataset, const sql::Act& act);

  sql::Database& database_;
  OnlineViews& views_;
  data::Datasets& datasets_;
  const crypto::Key key_;
  const sys::Clock& clock_;
  const PushLimits limits_;
  const std::unique_ptr<Rooms> rooms_;
  Counter& rows_;
  Counter& refused_;
  Counter& failed_;
  Histogram& seconds_;

  Mutex flushing_;  // one flush or pause at a time; taken before mu_
  Mutex mu_;        // guards everything below
  std::deque<Queued> queue_ GUARDED_BY(mu_);
  std::map<Name, std::vector<Queued>> held_ GUARDED_BY(mu_);   // of datasets that are paused
  std::map<Name, std::int64_t> on_their_way_ GUARDED_BY(mu_);  // queued or being applied
  std::map<Name, std::int64_t> applied_ GUARDED_BY(mu_);       // the last sequence that is in the store
  std::condition_variable queued_, arrived_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace falaj::features
