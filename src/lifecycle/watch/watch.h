// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/traffic/watched.h"
#include "lifecycle/watch/kind.h"
#include "lifecycle/watch/look.h"
#include "lifecycle/watch/now.h"
#include "lifecycle/watch/performance_watch.h"
#include "lifecycle/watch/stream.h"
#include "storage/sql/database.h"

namespace falaj::watch {

// What serving programs send of an endpoint.
struct NamedSegment {
  std::string segment;  // its name, the same however often it is sent
  traffic::WatchedSegment watched;
};
struct WatchedBatch {
  std::string tenant, project, endpoint;
  std::vector<NamedSegment> segments;
};

struct StandingFinding {
  std::int64_t number = 0;  // its own for ever
  std::string monitor, endpoint, variant;
  std::int64_t version = 0;
  std::int64_t first_us = 0, seen_us = 0;  // when it was found, and last
  std::optional<std::int64_t> ended_us;    // absent: it stands
  Finding finding;
};
struct FindingFilter {
  std::string monitor, endpoint, column, kind;  // "": any
  bool standing = true;                         // false: also those that ended
  std::size_t limit = 1000;
};

struct WindowSeen {
  std::string variant;
  std::int64_t version = 0, number = 0, from_us = 0, until_us = 0, rows = 0, looked_at = 0;
  std::vector<ColumnSeen> columns;
};

// How a monitor is doing with one version behind a variant.
struct StreamSeen {
  std::string variant;
  std::int64_t version = 0, windows = 0, last_us = 0;
  std::int64_t waiting = 0;  // rows of the window that is filling
  std::string reference;     // what it is compared with, or why with nothing
};
struct MonitorSeen {
  std::string name;
  MonitorSpec spec;
  std::vector<StreamSeen> streams;
  std::vector<PerformanceSeen> performance;
  std::vector<StandingFinding> findings;
};

// One column of one window beside its reference.
struct ColumnPair {
  std::string variant;
  std::int64_t version = 0, window = 0, from_us = 0, until_us = 0;
  std::string is;  // the reference, in words
  ReferenceColumn reference;
  traffic::ColumnSketch seen;
};

inline constexpr const char* kLabelColumn = "label";

MonitorSpec label_rule(MonitorSpec spec);  // Requires: it has labels

// Puts segments together into windows, looks at each once when it is full, and keeps what was found. Everything is on
// disk when a call returns, sketches sealed. Thread-safe.
class Watch {
 public:
  static std::span<const sql::Migration> migrations();
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    models::Registry& models;
    vault::Vault& vault;
    data::Datasets& datasets;
    serving::PredictionLog& predictions;
    const sys::Clock& clock;
    const crypto::Key& key;  // seals sketches
  };
  Watch(Parts parts, Metrics& metrics);

  // Segments that came before are left out. Throws corrupt and invalid: then they are nothing to send again.
  void accept(const WatchedBatch& batch);
  // Closes windows that waited long enough, notices silence, forgets what is old. Called now and then.
  void upkeep();

  std::vector<StandingFinding> findings(const Where& where, const FindingFilter& filter);  // newest first
  std::vector<MonitorSeen> monitors(const Where& where, const resource::Authorise& authorise);
  MonitorSeen monitor(const Where& where, const std::string& name);  // throws not_found
  std::vector<WindowSeen> windows(const Where& where, const std::string& monitor, std::size_t limit);  // newest first
  std::vector<PerformanceWindowSeen> performance(const Where& where, const std::string& monitor, std::size_t limit);
  Now now(const Where& where, const std::string& monitor, std::size_t windows);  // throws not_found
  // `window`: a number; none: the newest. "" and 0: of the variant and version that was seen last. Throws not_found.
  ColumnPair column(const Where& where, const std::string& monitor, const std::string& column,
                    const std::string& variant, std::int64_t version, std::optional<std::int64_t> window);

 private:
  struct Held {  // what is kept sealed of a window
    traffic::Sketches sketches;
    stats::RowSample rows;
  };
  struct Open {  // a window that is filling
    std::int64_t halvings = 0, from_us = 0, until_us = 0, rows = 0, looked_at = 0;
    Held held;
  };
  struct Kept {  // what is known of a stream
    std::string rule;
    std::int64_t windows = 0, last_us = 0;
    std::map<std::string, TestState> tests;
    std::string reference;
  };
  struct Closed {  // a window that was looked at, on its way to the disk
    Stream stream;
    std::string endpoint;
    Open window;
    std::int64_t number = 0;
    bool anew = false;           // the monitor compares otherwise than before: what was found goes
    bool keeps_windows = false;  // then; else they go, too
    Kept kept;
    Looked looked;
  };
  struct Declared {
    std::string name;
    MonitorSpec spec;
  };
  std::vector<std::pair<Where, Declared>> declared(const std::optional<Where>& where);
  std::optional<Open> open_window(const Stream& stream, std::int64_t halvings);
  Kept kept(const Stream& stream);
  std::shared_ptr<const Reference> reference(const Stream& stream, const MonitorSpec& spec, std::int64_t windows,
                                             std::string* why_not) REQUIRES(taking_);
  std::optional<Reference> past(const Stream& stream, const Past& past, std::string* why_not);
  Reference dataset(const Stream& stream, const MonitorSpec& spec);
  std::optional<Reference> first_windows(const Stream& stream, std::int64_t many);
  Closed close(const Stream& stream, const MonitorSpec& spec, Open window) REQUIRES(taking_);
  void write_closed(sql::Writer& w, const Closed& closed) const;
  void write_open(sql::Writer& w, const Stream& stream, const Open& open) const;
  State state_of(const Stream& stream, const Kept& kept) REQUIRES(taking_);
  void note(const Closed& closed) REQUIRES(taking_);
  using Filling = std::map<std::pair<Stream, std::int64_t>, Open>;  // by stream and halvings
  using More = std::function<void(sql::Writer&)>;                   // in the same write
  void write(const std::string& scope, std::vector<std::string>& names, Filling& filling,
             const std::vector<Closed>& closed, const More& more = {}) REQUIRES(taking_);
  void take_labels(const Where& where, const Declared& monitor) REQUIRES(taking_);
  void take_performance();
  void close_due() REQUIRES(taking_);
  void notice_silence(const Where& where, const Declared& monitor) REQUIRES(taking_);
  void forget(const Where& where, const Declared& monitor) REQUIRES(taking_);
  Bytes seal(const Stream& stream, const Held& held) const;
  Held unseal(const Stream& stream, BytesView sealed) const;
  MonitorSeen seen(const Where& where, const std::string& name, const MonitorSpec& spec);

  Parts parts_;
  Metrics& metrics_;
  PerformanceWatch performance_;
  Counter& segments_;
  Counter& windows_;
  std::map<std::string, Gauge*> standing_;  // by kind

  Mutex taking_;  // one at a time adds to windows; guards what is below
  struct Compared {
    std::string asked;  // what of the monitor it follows from
    std::shared_ptr<const Reference> reference;
  };
  std::map<Stream, Compared> references_ GUARDED_BY(taking_);
  std::map<Stream, std::pair<std::int64_t, State>> states_ GUARDED_BY(taking_);  // after so many windows
  std::map<std::string, Gauge*> psi_ GUARDED_BY(taking_);                        // by labels; bounded
  std::int64_t next_tidy_us_ GUARDED_BY(taking_) = 0;
};

}  // namespace falaj::watch
