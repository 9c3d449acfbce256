// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/serving/predictions.h"
#include "lifecycle/watch/kind.h"
#include "lifecycle/watch/labelled.h"
#include "lifecycle/watch/performance.h"
#include "lifecycle/watch/stream.h"

namespace falaj::watch {

// How a monitor is doing with the labels of one version behind a variant.
struct PerformanceSeen {
  std::string variant;
  std::int64_t version = 0, windows = 0, last_us = 0;
  std::int64_t waiting = 0;    // labelled predictions of the next window
  std::int64_t unmatched = 0;  // labels whose predictions are not in the log
  std::int64_t late = 0;       // that came after a window that they belonged to was judged, and count in the next
  std::string reference;       // what it is compared with, or why with nothing
};
struct PerformanceWindowSeen {
  std::string variant;
  std::int64_t version = 0, number = 0, from_us = 0, until_us = 0, labels = 0;
  std::vector<MetricSeen> metrics;
};

// Joins labels with the predictions of the log, puts them into windows in the order of time, and looks at each once
// when it is full. Everything is on disk when a call returns, what was predicted sealed. Thread-safe.
class PerformanceWatch {
 public:
  struct Parts {
    sql::Database& database;
    Trainings trainings;
    data::Datasets& datasets;
    serving::PredictionLog& predictions;
    const sys::Clock& clock;
    const crypto::Key& key;
  };
  PerformanceWatch(Parts parts, Metrics& metrics) : parts_(parts), metrics_(metrics) {}

  // Labels that came since the last time. Called now and then.
  void take(const Where& where, const std::string& monitor, const MonitorSpec& spec);
  // Forgets windows that ended before then.
  void forget(const Where& where, const std::string& monitor, const MonitorSpec& spec, std::int64_t before_us);
  static void remove(sql::Writer& w, const Where& where, const std::string& monitor);

  std::vector<PerformanceSeen> seen(const Where& where, const std::string& monitor, const MonitorSpec& spec);
  std::vector<PerformanceWindowSeen> windows(const Where& where, const std::string& monitor, std::size_t limit);

 private:
  struct Cursor {  // how far a monitor has come
    std::string rule;
    std::int64_t number = 0;
    std::vector<std::int64_t> waiting;  // labels before it whose predictions were not in the log yet
  };
  struct Kept {  // what is known of a stream
    std::string rule;
    std::int64_t windows = 0, unmatched = 0, late = 0, last_us = 0;
    std::string reference;
    PerformanceState state;
    std::vector<Labelled> pending;  // not in a window yet
  };
  struct Judged {
    OutcomeWindow window;
    std::vector<MetricSeen> metrics;
  };
  struct Turn {  // what one stream came to
    bool anew = false;
    Kept kept;
    std::vector<Judged> judged;
    std::optional<std::vector<Finding>> findings;
  };
  struct Tries {
    std::int64_t next_us = 0;
    int left = 0;
  };
  Cursor cursor(const Where& where, const std::string& monitor, const std::string& rule);
  std::vector<CameLabel> came(const Where& where, const std::string& endpoint, const Cursor& cursor);
  bool is_due(const Stream& of, const PerformanceSpec& spec, const std::vector<CameLabel>& labels) REQUIRES(taking_);
  Turn& turn(std::map<Stream, Turn>& turns, const Stream& stream, const std::string& rule);
  void make_windows(const Stream& stream, const MonitorSpec& spec, Turn& turn) REQUIRES(taking_);
  void judge(const Stream& stream, const MonitorSpec& spec, stats::Task task, std::span<const Labelled> rows,
             Turn& turn) REQUIRES(taking_);
  std::shared_ptr<const PerformanceReference> reference(const Stream& stream, const MonitorSpec& spec, const Turn& turn,
                                                        std::string* why_not) REQUIRES(taking_);
  std::optional<PerformanceReference> past(const Stream& stream, const Turn& turn, const Past& past,
                                           std::string* why_not);
  std::vector<OutcomeWindow> windows_of(const Stream& stream, const Turn& turn, std::int64_t from, std::int64_t to);
  std::vector<OutcomeWindow> windows_on_disk(sql::Reader& r, const Stream& stream, std::int64_t from, std::int64_t to);
  Kept kept(const Stream& stream);
  void write(sql::Writer& w, const Stream& stream, const MonitorSpec& spec, const Turn& turn) const;
  void note(const Stream& stream, const Turn& turn) REQUIRES(taking_);
  Bytes seal(const Stream& stream, BytesView plain) const;
  Bytes unseal(const Stream& stream, BytesView sealed) const;

  Parts parts_;
  Metrics& metrics_;

  Mutex taking_;  // one at a time; guards what is below
  std::map<Stream, std::shared_ptr<const PerformanceReference>> references_ GUARDED_BY(taking_);
  std::map<Stream, Tries> tries_ GUARDED_BY(taking_);         // by monitor
  std::map<std::string, Gauge*> gauges_ GUARDED_BY(taking_);  // by labels; bounded
};

}  // namespace falaj::watch
