// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/features/online_views.h"

namespace falaj::features {

struct Materialise {
  std::optional<std::int64_t> end_us;  // events up to then; now when absent, or when that is still to come
  bool full = false;                   // from the beginning, into a new generation
  // What the view was at that; what it is now when absent.
  std::optional<std::int64_t> revision{};
  // Of rows that are left after others were erased: what is expected of many rows together need not be true of them.
  bool of_rest = false;
};

// Brings rows of dataset versions online. A pass that was interrupted is gone on with: what it wrote already is
// recognised by its number. Thread-safe.
class Materialiser {
 public:
  // Runs `begin` while no push to the dataset is on its way into the store. When that says so, there is a new space:
  // what was pushed and is in no version is brought there before pushes go on.
  using Paused = std::function<void(const Where&, const std::string& dataset, const std::function<bool()>& begin)>;
  Materialiser(sql::Database& database, OnlineViews& views, data::Datasets& datasets, const sys::Clock& clock,
               Metrics& metrics, Paused paused);

  // What is new since the last pass, if that can be told: rows were only appended, and each is looked at alone. Else
  // everything. Conflict when a pass of the view is under way.
  OnlineView run(const Where& where, const std::string& view, const Materialise& how, const sql::Act& act,
                 const table::Workspace::Watch& watch = {});
  double progress(const Digest& meaning) const;  // of a pass under way, 0 to 1
  bool is_under_way(const Digest& meaning) const;
  // Forgets one, and erases all that it has. Conflict when a pass of it is under way.
  void remove(const OnlineView& view, const sql::Act& act);
  // Forgets meanings of views that nothing names any more. Returns how many.
  std::size_t remove_unused(const Where& where, const std::function<bool(const OnlineView&)>& is_used,
                            const sql::Act& act);
  void sweep(const OnlineView& view, const sql::Act& act);  // erases generations that are read no more

 private:
  class UnderWay;
  // What of a version would come online; refused here, nothing was begun that would be gone on with.
  bool adds(const Where& where, const Definition& definition, const Materialise& how, const data::Version& version,
            std::int64_t end_us);
  void check(const Where& where, const Definition& definition, const Materialise& how, const data::Version& version,
             const sql::Act& act, const table::Workspace::Watch& watch);
  OnlineView begin_checked(const Where& where, const Definition& definition, const Materialise& how,
                           const sql::Act& act, const table::Workspace::Watch& watch);
  std::uint64_t covered(const Where& where, const data::Version& version);
  OnlineView begin(const Where& where, const Definition& definition, const Materialise& how,
                   const data::Version& version, const sql::Act& act);
  OnlineView finish(const Where& where, const Definition& definition, const OnlineView& row, UnderWay& way,
                    const sql::Act& act, const table::Workspace::Watch& watch);
  struct Filled {
    std::vector<Measured> measured;  // by a full pass; one that adds leaves it as it was
    std::int64_t beyond = 0;
  };
  Filled fill(const Where& where, const Definition& definition, const OnlineView& row, UnderWay& way,
              const table::Workspace::Watch& watch);
  bool is_appended(const Where& where, const data::Version& to, std::int64_t from);

  sql::Database& database_;
  OnlineViews& views_;
  data::Datasets& datasets_;
  const sys::Clock& clock_;
  const Paused paused_;
  Counter& passes_;
  Counter& failed_;
  Counter& events_;
  Counter& entities_;

  mutable Mutex mu_;
  std::map<Digest, double> under_way_ GUARDED_BY(mu_);
};

}  // namespace falaj::features
