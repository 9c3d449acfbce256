// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/materialiser.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "lifecycle/features/event_cursor.h"
#include "lifecycle/features/measuring.h"
#include "lifecycle/features/view_checks.h"

namespace falaj::features {
namespace {

constexpr std::size_t kEntitiesPerWrite = 512;
constexpr std::uint64_t kEventsPerSettle = 4096;
constexpr int kBeginTries = 10;
constexpr sys::Micros kReadersMoveOn = std::chrono::seconds(10);

std::int64_t count_beyond(table::Workspace& room, const Definition& definition, std::int64_t end_us) {
  std::int64_t rows = 0;
  room.query(fmt::format("SELECT count(*) FROM ({}) WHERE epoch_us({}::TIMESTAMP) > {}", definition.select,
                         table::identifier(definition.plan.at), end_us + kSkewUs),
             {}, [&](const table::Chunk& chunk) {
               if (chunk.rows() > 0) rows = chunk.integer(0, 0);
               return true;
             });
  return rows;
}

// Entities on their way into a space, many to a write.
class Writing {
 public:
  Writing(online::Store& store, const online::Space& space, const lookup::View& view, const Pass& pass,
          std::uint64_t covered, bool adds, bool expires)
      : store_(store), space_(space), view_(view), pass_(pass), covered_(covered), adds_(adds), expires_(expires) {}

  void add(Bytes key, lookup::Part part) {
    keys_.push_back(std::move(key));
    parts_.push_back(std::move(part));
    if (keys_.size() == kEntitiesPerWrite) flush();
  }
  void flush() {
    if (keys_.empty()) return;
    const std::vector<BytesView> keys(keys_.begin(), keys_.end());
    store_.update(space_, keys, [this](std::size_t i, const std::optional<online::Row>& old) {
      auto record = old ? lookup::Record::decode(view_, old->payload) : lookup::Record(view_);
      const auto number = static_cast<std::uint64_t>(pass_.number);
      if (record.pass() >= number) return std::optional<online::Changed>();
      if (adds_)
        record.add_to_base(number, covered_, parts_[i], pass_.end_us);
      else
        record.set_base(number, covered_, parts_[i], pass_.end_us);
      return std::optional(changed(view_, record, expires_));
    });
    written_ += keys_.size();
    keys_.clear();
    parts_.clear();
  }
  std::size_t written() const { return written_; }

 private:
  online::Store& store_;
  const online::Space& space_;
  const lookup::View& view_;
  const Pass& pass_;
  const std::uint64_t covered_;
  const bool adds_, expires_;
  std::vector<Bytes> keys_;
  std::vector<lookup::Part> parts_;
  std::size_t written_ = 0;
};

}  // namespace

// The one pass of a meaning, and how far it is.
class Materialiser::UnderWay {
 public:
  UnderWay(Materialiser& of, const Digest& meaning, const std::string& view) : of_(of), meaning_(meaning) {
    Lock lock(of_.mu_);
    if (!of_.under_way_.emplace(meaning_, 0).second)
      throw Error(Code::conflict, fmt::format("feature view '{}' is being materialised already", view));
  }
  ~UnderWay() {
    Lock lock(of_.mu_);
    of_.under_way_.erase(meaning_);
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  void note(double done) {
    Lock lock(of_.mu_);
    of_.under_way_[meaning_] = done;
  }

 private:
  Materialiser& of_;
  const Digest meaning_;
};

online::Changed changed(const lookup::View& view, const lookup::Record& record, bool expires) {
  online::Changed out;
  out.event_us = record.newest_us().value_or(record.settled_us());
  out.created_us = record.settled_us();
  out.payload = record.encode();
  // Rows without a time to live are kept for good.
  if (expires && (view.rows.empty() || view.ttl_us))
    out.expires_us =
        out.event_us + std::max(view.windows.longest_us() + view.windows.tile_us(), view.ttl_us.value_or(0)) + kSkewUs;
  return out;
}

Materialiser::Materialiser(sql::Database& database, OnlineViews& views, data::Datasets& datasets,
                           const sys::Clock& clock, Metrics& metrics, Paused paused)
    : database_(database),
      views_(views),
      datasets_(datasets),
      clock_(clock),
      paused_(std::move(paused)),
      passes_(metrics.counter("falaj_features_materialisations_total", "Passes that brought rows online.",
                              {{"outcome", "ok"}})),
      failed_(metrics.counter("falaj_features_materialisations_total", "Passes that brought rows online.",
                              {{"outcome", "failed"}})),
      events_(
          metrics.counter("falaj_features_materialised_events_total", "Rows of datasets that were brought online.")),
      entities_(metrics.counter("falaj_features_materialised_entities_total", "Entities written by passes.")) {}

double Materialiser::progress(const Digest& meaning) const {
  Lock lock(mu_);
  const auto found = under_way_.find(meaning);
  return found == under_way_.end() ? 0 : found->second;
}

bool Materialiser::is_under_way(const Digest& meaning) const {
  Lock lock(mu_);
  return under_way_.contains(meaning);
}

bool Materialiser::is_appended(const Where& where, const data::Version& to, std::int64_t from) {
  auto at = to;
  while (at.number != from) {
    if (!at.parent || at.mode != data::Mode::append || *at.parent < from) return false;
    try {
      at = datasets_.version(where, to.dataset, at.parent);
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      return false;  // a version in between was removed
    }
  }
  return true;
}

// Up to which epoch pushed rows are rows of the version. That a flush made the version is written with it; that it is
// done, a moment later.
std::uint64_t Materialiser::covered(const Where& where, const data::Version& version) {
  std::optional<PushedSet> set;
  auto epoch = database_.read([&](sql::Reader& r) {
    set = find_pushed(r, where, version.dataset);
    return covered_by(r, where, version.dataset, version.number);
  });
  if (set && set->flushing > epoch && !set->upload.empty()) {
    try {
      const auto flushed = datasets_.finished(where, version.dataset, set->upload);
      if (flushed && flushed->number <= version.number) epoch = set->flushing;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
  }
  return static_cast<std::uint64_t>(epoch);
}

bool Materialiser::adds(const Where& where, const Definition& definition, const Materialise& how,
                        const data::Version& version, std::int64_t end_us) {
  const auto before = views_.find(definition.meaning);
  if (how.full || !before || !before->done || before->running || !definition.row_by_row) return false;
  const auto& last = *before->done;
  return end_us >= last.end_us && last.beyond == 0 && is_appended(where, version, last.version);
}

void Materialiser::check(const Where& where, const Definition& definition, const Materialise& how,
                         const data::Version& version, const sql::Act& act, const table::Workspace::Watch& watch) {
  if (definition.spec.expectations.empty()) return;
  const auto now_us = clock_.wall().count();
  std::optional<std::int64_t> since;
  if (adds(where, definition, how, version, how.end_us.value_or(now_us)))
    since = views_.find(definition.meaning)->done->version;
  if (since == version.number) return;  // nothing is new
  const auto room = datasets_.room();
  datasets_.open(*room, where, version, version.dataset, since);
  auto found = run_expectations(*room, definition, how.of_rest ? Rules::rows : Rules::all, now_us, watch);
  database_.write(act, [&](sql::Writer& w) {
    keep_view_checks(w, where, definition.name, found.refused.empty() ? std::optional(version.number) : std::nullopt,
                     now_us, found.results);
  });
  if (!found.refused.empty()) failed_.Increment();
  refuse_if_any("rows", std::move(found.refused));
}

OnlineView Materialiser::begin(const Where& where, const Definition& definition, const Materialise& how,
                               const data::Version& version, const sql::Act& act) {
  const auto end_us = how.end_us.value_or(clock_.wall().count());
  const bool adds = this->adds(where, definition, how, version, end_us);
  return views_.change(act, definition.meaning, [&](std::optional<OnlineView> row) {
    if (!row) {
      row.emplace();
      row->meaning = definition.meaning;
      row->where = where;
      row->view = definition.name;
      row->dataset = definition.spec.dataset;
    }
    row->revision = definition.revision;
    row->problem.clear();
    if (row->running && !how.full) return *row;  // goes on with it
    Pass pass{++row->passes, 0, version.number, version.rows, end_us};
    pass.generation = adds && row->done ? row->done->generation : ++row->generations;
    row->running = pass;
    return *row;
  });
}

// A flush between looking for the newest version and the pause would leave its rows in neither: not in that version,
// and no longer among those that are brought again into a new space.
OnlineView Materialiser::begin_checked(const Where& where, const Definition& definition, const Materialise& how,
                                       const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto& dataset = definition.spec.dataset;
  for (int tries_left = kBeginTries; tries_left > 0; --tries_left) {
    const auto version = datasets_.version(where, dataset, std::nullopt);
    check(where, definition, how, version, act, watch);
    std::optional<OnlineView> row;
    paused_(where, dataset, [&] {
      const auto newest = datasets_.version(where, dataset, std::nullopt);
      if (covered(where, newest) != covered(where, version)) return false;
      row = begin(where, definition, how, version, act);
      return !row->done || row->done->generation != row->running->generation;
    });
    if (row) return *row;
  }
  throw Error(Code::conflict, fmt::format("pushed rows became versions of dataset '{}' faster than feature view '{}' "
                                          "could look at them; try again",
                                          dataset, definition.name));
}

Materialiser::Filled Materialiser::fill(const Where& where, const Definition& definition, const OnlineView& row,
                                        UnderWay& way, const table::Workspace::Watch& watch) {
  const auto& pass = *row.running;
  const bool adds = row.done && row.done->generation == pass.generation;
  const auto version = datasets_.version(where, definition.spec.dataset, pass.version);
  const auto room = datasets_.room();
  datasets_.open(*room, where, version, version.dataset, adds ? std::optional(row.done->version) : std::nullopt);
  const auto condition = fmt::format("at_us <= {}", pass.end_us + kSkewUs);
  // Rows that are only appended keep their numbers below those of later passes.
  const auto first_row = adds ? static_cast<std::uint64_t>(row.done->rows) : 0;
  EventCursor events(*room, definition, condition);
  const auto& view = *definition.view;
  const auto space = views_.space(definition.meaning, pass.generation);
  Writing writing(views_.store(), *space, view, pass, covered(where, version), adds,
                  pass.end_us > clock_.wall().count() - kPastUs);
  std::optional<Measuring> measuring;
  if (!adds) measuring.emplace(view);
  std::uint64_t seen = 0;
  const auto total = static_cast<double>(std::max<std::int64_t>(version.rows - (adds ? row.done->rows : 0), 1));
  while (!events.at_end()) {
    auto key = events.key();
    lookup::Part part(view);
    for (; events.same_key(key); events.next()) {
      auto event = events.event();
      event.row += first_row;
      part.add({event, part.needs_row(event, pass.end_us) ? events.row() : Bytes()}, pass.end_us);
      if (++seen % kEventsPerSettle != 0) continue;
      part.settle(pass.end_us);  // keeps what is in memory as small as what will be stored
      const auto done = std::min(static_cast<double>(seen) / total, 1.0);
      way.note(done);
      if (watch) watch(done);
    }
    part.settle(pass.end_us);
    if (part.empty()) continue;
    if (measuring) measuring->add(part, pass.end_us);
    writing.add(std::move(key), std::move(part));
  }
  writing.flush();
  events_.Increment(static_cast<double>(seen));
  entities_.Increment(static_cast<double>(writing.written()));
  Filled filled{measuring ? measuring->result(row.measured) : row.measured,
                count_beyond(*room, definition, pass.end_us)};
  return filled;
}

OnlineView Materialiser::run(const Where& where, const std::string& name, const Materialise& asked, const sql::Act& act,
                             const table::Workspace::Watch& watch) {
  auto how = asked;
  // What is settled as of a later moment could not be read before that.
  if (how.end_us) how.end_us = std::min(*how.end_us, clock_.wall().count());
  const auto definition = views_.definitions().view(where, name, how.revision);
  if (!definition->has_entity())
    throw Error(Code::invalid, fmt::format("feature view '{}' is computed of requests alone: it has no rows to bring "
                                           "online, and is read as it is",
                                           name));
  UnderWay way(*this, definition->meaning, name);
  views_.need_mark(act);
  const auto before = views_.find(definition->meaning);
  auto row = begin_checked(where, *definition, how, act, watch);
  const bool resumed = before && before->running && before->running->number == row.running->number;
  row = finish(where, *definition, row, way, act, watch);
  // That was of an earlier call; what this one asks for comes after it.
  if (resumed) row = finish(where, *definition, begin_checked(where, *definition, how, act, watch), way, act, watch);
  sweep(row, act);
  return row;
}

OnlineView Materialiser::finish(const Where& where, const Definition& definition, const OnlineView& row, UnderWay& way,
                                const sql::Act& act, const table::Workspace::Watch& watch) {
  Filled filled;
  try {
    filled = fill(where, definition, row, way, watch);
  } catch (const Error& e) {
    failed_.Increment();
    views_.change(act, definition.meaning, [&](std::optional<OnlineView> failed) {
      CHECK(failed, "it was begun");
      failed->problem = e.what();
      return *failed;
    });
    throw;
  }
  passes_.Increment();
  return views_.change(act, definition.meaning, [&](std::optional<OnlineView> done) {
    CHECK(done && done->running, "it was begun");
    done->done = done->running;
    done->running.reset();
    done->measured = filled.measured;
    done->done->beyond = filled.beyond;
    return *done;
  });
}

void Materialiser::sweep(const OnlineView& view, const sql::Act& act) {
  const auto keep = [&](std::int64_t generation) {
    return (view.done && view.done->generation == generation) ||
           (view.running && view.running->generation == generation);
  };
  auto swept = view.swept;
  // Up to the first that is still needed: numbers only grow.
  for (auto g = view.swept + 1; g <= view.generations && !keep(g); ++g) {
    // Programs that read it by themselves first hear of the next one.
    if (views_.is_shared(view.meaning, g) && clock_.wall() - sys::Micros(view.changed_us) < kReadersMoveOn) break;
    views_.erase_generation(view.meaning, g);
    swept = g;
  }
  if (swept == view.swept) return;
  views_.change(act, view.meaning, [&](std::optional<OnlineView> row) {
    CHECK(row, "it is there");
    row->swept = std::max(row->swept, swept);
    return *row;
  });
}

void Materialiser::remove(const OnlineView& view, const sql::Act& act) {
  const UnderWay way(*this, view.meaning, view.view);
  std::optional<OnlineView> row;
  // Pushes that are on their way would write what was erased already; later ones pass it by.
  paused_(view.where, view.dataset, [&] {
    row = views_.change(act, view.meaning, [&](std::optional<OnlineView> now) {
      auto out = now.value_or(view);
      out.done.reset();
      out.running.reset();
      return out;
    });
    return false;
  });
  for (auto g = row->swept + 1; g <= row->generations; ++g) views_.erase_generation(view.meaning, g);
  views_.forget(act, view.meaning);
}

std::size_t Materialiser::remove_unused(const Where& where, const std::function<bool(const OnlineView&)>& is_used,
                                        const sql::Act& act) {
  std::size_t removed = 0;
  for (const auto& view : views_.list(where)) {
    if (is_used(view)) continue;
    remove(view, act);
    ++removed;
  }
  return removed;
}

}  // namespace falaj::features
