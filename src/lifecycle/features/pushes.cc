// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/pushes.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <list>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/crypto/aead.h"
#include "lifecycle/features/event_cursor.h"
#include "lifecycle/features/plain_rows.h"
#include "lifecycle/features/push_room.h"
#include "lifecycle/features/view_checks.h"
#include "lifecycle/lookup/values.h"

namespace falaj::features {
namespace {

constexpr std::size_t kPushesPerCommit = 256;
constexpr std::int64_t kIdsKeptUs = std::int64_t{86'400} * 1'000'000;
constexpr std::size_t kFaultsMax = 20;
constexpr std::int64_t kRowsPerRead = 1000;
// Pushed rows come after all rows of versions, in the order in which they were pushed.
constexpr std::uint64_t kAfterVersions = std::uint64_t{1} << 62;
constexpr unsigned kRowBits = 16;
constexpr std::chrono::milliseconds kFirstWait{20}, kLongestWait{2000};
constexpr std::chrono::seconds kArriveWithin{30};

std::string lines(const JsonRows& rows) {
  std::string out;
  for (const auto& row : rows) out += json::serialize(row) + "\n";
  return out;
}

}  // namespace

struct Pushes::Typed {
  std::string dataset;
  table::Schema schema;
  std::vector<std::vector<lookup::Value>> rows;
  JsonRows as_json;  // as a file would have them
};

struct Pushes::Changes {
  std::shared_ptr<const Definition> definition;
  EntityEvents entities;
};

struct Pushes::Queued {
  Where where;
  std::string dataset;
  std::int64_t sequence = 0, epoch = 0, as_of_us = 0;
  std::shared_ptr<const Typed> rows;
  std::vector<Changes> changes;

  const Changes* find(const Digest& meaning) const {
    const auto found = std::find_if(changes.begin(), changes.end(),
                                    [&](const Changes& c) { return c.definition->meaning == meaning; });
    return found == changes.end() ? nullptr : &*found;
  }
};

// Rooms that are set up for rows of a dataset: making one takes longer than a push.
class Pushes::Rooms {
 public:
  explicit Rooms(data::Datasets& datasets) : datasets_(datasets) {}
  template <class F>
  void with(const Typed& rows, F&& work) {
    const auto name = PushRoom::name_of(rows.dataset, rows.schema);
    std::unique_ptr<PushRoom> room;
    {
      Lock lock(mu_);
      const auto found = idle_.find(name);
      if (found != idle_.end()) {
        room = std::move(found->second);
        idle_.erase(found);
      }
    }
    if (!room) room = std::make_unique<PushRoom>(datasets_.room(), rows.dataset, rows.schema);
    room->fill(rows.rows);
    work(*room);
    // One that failed is not used again.
    Lock lock(mu_);
    if (idle_.size() < kIdleMax) idle_.emplace(name, std::move(room));
  }

 private:
  static constexpr std::size_t kIdleMax = 16;
  data::Datasets& datasets_;
  Mutex mu_;
  std::multimap<std::string, std::unique_ptr<PushRoom>> idle_ GUARDED_BY(mu_);
};

Pushes::Pushes(sql::Database& database, OnlineViews& views, data::Datasets& datasets, const crypto::Key& key,
               const sys::Clock& clock, Metrics& metrics, PushLimits limits)
    : database_(database),
      views_(views),
      datasets_(datasets),
      key_(crypto::derive(key, {}, "pushed rows")),
      clock_(clock),
      limits_(limits),
      rooms_(std::make_unique<Rooms>(datasets)),
      rows_(metrics.counter("falaj_features_pushed_rows_total", "Rows that were pushed.")),
      refused_(metrics.counter("falaj_features_pushes_refused_total", "Pushes that were refused.")),
      failed_(metrics.counter("falaj_features_push_views_failed_total",
                              "Times that pushed rows could not be brought into a view.")),
      seconds_(metrics.histogram("falaj_features_push_seconds", "From a push to its being known online.",
                                 Metrics::seconds_buckets())) {}

Pushes::~Pushes() { stop(); }

void Pushes::start() {
  for (const auto& set : sets()) {
    {
      Lock lock(mu_);
      applied_[name_of(set.where, set.dataset)] = set.waiting == 0 ? set.sequence : 0;
    }
    if (set.waiting > 0) replay(set.where, set.dataset);
  }
  thread_ = std::thread([this] { loop(); });
}

void Pushes::stop() {
  {
    Lock lock(mu_);
    stopping_ = true;
    queued_.notify_all();
    arrived_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Pushes::Typed Pushes::typed(const data::DatasetSpec& spec, const std::string& dataset, const JsonRows& rows) const {
  if (rows.size() > limits_.rows_max)
    throw Error(Code::invalid,
                fmt::format("rows: {} in one push; at most {} are taken at once", rows.size(), limits_.rows_max));
  if (rows.empty()) throw Error(Code::invalid, "rows: there are none");
  Typed out{dataset, spec.schema(), {}, {}};
  Faults faults;
  for (std::size_t i = 0; i < rows.size() && faults.size() < kFaultsMax; ++i) {
    auto& values = out.rows.emplace_back();
    auto& kept = out.as_json.emplace_back();
    std::size_t known = 0;
    for (const auto& column : out.schema) {
      const auto at = [&] { return fmt::format("rows[{}].{}", i, column.name); };
      const auto* given = rows[i].if_contains(column.name);
      known += given ? 1 : 0;
      const auto type = online_type(column.type);
      auto value = given ? lookup::from_json(*given, type) : lookup::Value();
      if (!value) faults.push_back({at(), fmt::format("must be {}", lookup::what_is_expected(type))});
      if (value && !column.nullable && std::holds_alternative<std::monostate>(*value))
        faults.push_back({at(), "must not be missing"});
      values.push_back(value ? std::move(*value) : lookup::Value());
      kept[column.name] = lookup::to_json(values.back(), type);
    }
    if (known == rows[i].size()) continue;
    for (const auto& field : rows[i])
      if (!table::find(out.schema, field.key()))
        faults.push_back({fmt::format("rows[{}].{}", i, std::string_view(field.key()).substr(0, 80)),
                          fmt::format("dataset '{}' has no such column", dataset)});
  }
  refuse_if_any("rows", std::move(faults));
  return out;
}

Pushes::Changes Pushes::evaluate(const Typed& rows, std::shared_ptr<const Definition> definition) {
  Changes out{std::move(definition), {}};
  if (const auto plain = PlainRows::of(out.definition->spec, out.definition->plan, rows.schema)) {
    out.entities = plain->events(*out.definition->view, rows.rows);
    return out;
  }
  rooms_->with(rows, [&](PushRoom& room) {
    // Looked at anew each time: DuckDB folds what it knows of the rows that are there into a prepared statement, and
    // would answer by it for others.
    for (EventCursor events(room.room(), *out.definition, ""); !events.at_end(); events.next()) {
      auto key = events.key();
      if (out.entities.empty() || out.entities.back().first != key) out.entities.push_back({std::move(key), {}});
      out.entities.back().second.push_back({events.event(), events.row()});
    }
  });
  return out;
}

void Pushes::need_room(const Where& where, const std::string& dataset) {
  {
    Lock lock(mu_);
    if (stopping_) throw Error(Code::cancelled, "stopping");
    if (queue_.size() >= limits_.queued_max)
      throw Error(Code::exhausted, "too many pushes are waiting: try again in a moment");
  }
  if (const auto rows = waiting(where, dataset); rows >= limits_.waiting_max)
    throw Error(Code::exhausted, fmt::format("{} pushed rows wait to become a version of dataset '{}'; 'falaj features "
                                             "flush' says why they do not",
                                             rows, dataset));
}

void Pushes::check(const Typed& rows, const Definition& definition, std::int64_t now_us,
                   std::vector<std::pair<std::string, ViewChecks>>& failed) {
  if (definition.spec.expectations.empty()) return;
  ViewChecks found;
  rooms_->with(rows, [&](PushRoom& room) { found = run_expectations(room.room(), definition, Rules::rows, now_us); });
  // One that held is not worth a record: there are many pushes.
  std::erase_if(found.results, [](const data::CheckResult& result) { return result.held; });
  if (!found.results.empty()) failed.emplace_back(definition.name, std::move(found));
}

// What the dataset expects of each of its rows: once they are taken it is too late to refuse them.
void Pushes::check_dataset(const Where& where, const Typed& rows, std::int64_t now_us, const sql::Act& act) {
  const auto rules = datasets_.rules_of_rows(where, rows.dataset);
  if (rules.empty()) return;
  ViewChecks found;
  rooms_->with(rows, [&](PushRoom& room) { found = run_rules(room.room(), rows.dataset, rules, now_us); });
  if (found.refused.empty()) return;
  std::erase_if(found.results, [](const data::CheckResult& result) { return result.held; });
  datasets_.note_refused(where, rows.dataset, found.results, act);
  refuse_if_any("rows", std::move(found.refused));
}

void Pushes::refuse(const Where& where, std::vector<std::pair<std::string, ViewChecks>>& failed, const sql::Act& act) {
  Faults faults;
  for (auto& [view, checks] : failed) faults.insert(faults.end(), checks.refused.begin(), checks.refused.end());
  if (faults.empty()) return;
  database_.write(act, [&](sql::Writer& w) {
    for (const auto& [view, checks] : failed)
      keep_view_checks(w, where, view, std::nullopt, clock_.wall().count(), checks.results);
  });
  refuse_if_any("rows", std::move(faults));
}

Taken Pushes::push(const Where& where, const std::string& dataset, const JsonRows& rows, const Push& how,
                   const sql::Act& act) {
  const auto began = clock_.now();
  try {
    need_room(where, dataset);
    const auto spec = datasets_.spec(where, dataset);
    if (!spec.key.empty())
      throw Error(Code::invalid, fmt::format("dataset '{}' has a key: its rows can be ingested, not pushed", dataset));
    const auto as_of_us = how.as_of_us.value_or(clock_.wall().count());
    const auto typed_rows = std::make_shared<const Typed>(typed(spec, dataset, rows));
    check_dataset(where, *typed_rows, as_of_us, act);
    std::vector<Changes> changes;
    std::vector<std::pair<std::string, ViewChecks>> failed;  // by the name of the view: what did not hold
    for (const auto& live : views_.live(where, dataset))
      if (live.definition->row_by_row) {
        check(*typed_rows, *live.definition, as_of_us, failed);
        auto& added = changes.emplace_back(evaluate(*typed_rows, live.definition));
        for (const auto& [key, events] : added.entities)
          for (const auto& happened : events)
            if (happened.event.at_us > as_of_us + kSkewUs)
              throw Error(Code::invalid, fmt::format("rows[{}].{}: lies more than five minutes in the future",
                                                     happened.event.row - 1, live.definition->spec.time));
      }
    refuse(where, failed, act);
    const auto taken = database_.write(act, [&](sql::Writer& w) {
      if (!how.id.empty())
        if (const auto before = find_push_id(w, where, dataset, how.id))
          return Taken{static_cast<std::int64_t>(rows.size()), *before, true};
      auto set = find_pushed(w, where, dataset).value_or(PushedSet{where, dataset, 1, 0, 0, "", 0});
      ++set.sequence;
      set.waiting += static_cast<std::int64_t>(rows.size());
      put_pushed(w, set);
      PushedRows stored{set.sequence, set.epoch, as_of_us, static_cast<std::int64_t>(rows.size()), {}};
      stored.sealed = crypto::seal(key_, header(where, dataset, stored.sequence), as_bytes(lines(typed_rows->as_json)));
      insert_rows(w, where, dataset, stored);
      if (!how.id.empty()) put_push_id(w, where, dataset, how.id, stored.sequence, clock_.wall().count());
      for (const auto& [view, checks] : failed)
        keep_view_checks(w, where, view, std::nullopt, clock_.wall().count(), checks.results);
      // On the writer's thread: the order of commits is the order of the queue.
      w.after_commit([this, where, dataset, stored, typed_rows, changes] {
        enqueue({where, dataset, stored.sequence, stored.epoch, stored.as_of_us, typed_rows, changes});
      });
      return Taken{stored.rows, stored.sequence, false};
    });
    wait_until_applied(name_of(where, dataset), taken.sequence);
    if (!taken.again) rows_.Increment(static_cast<double>(taken.rows));
    seconds_.Observe(std::chrono::duration<double>(clock_.now() - began).count());
    return taken;
  } catch (const Error&) {
    refused_.Increment();
    throw;
  }
}

Pushes::Name Pushes::name_of(const Where& where, const std::string& dataset) {
  return {where.tenant.str(), where.project.str(), dataset};
}

void Pushes::enqueue(Queued queued) {
  Lock lock(mu_);
  const auto name = name_of(queued.where, queued.dataset);
  if (const auto held = held_.find(name); held != held_.end()) {
    held->second.push_back(std::move(queued));
    return;
  }
  ++on_their_way_[name];
  queue_.push_back(std::move(queued));
  queued_.notify_one();
}

void Pushes::wait_until_applied(const Name& name, std::int64_t sequence) {
  const auto began = clock_.now();
  Lock lock(mu_);
  while (applied_[name] < sequence) {
    if (stopping_ || clock_.now() - began > kArriveWithin)
      throw Error(Code::unavailable,
                  "the rows are durable, but the online store does not take them yet; they are known "
                  "online when it does");
    lock.wait_for(arrived_, kLongestWait);
  }
}

void Pushes::wait_until_idle(const Name& name) {
  Lock lock(mu_);
  while (on_their_way_[name] > 0) {
    if (stopping_) throw Error(Code::cancelled, "stopping");
    lock.wait(arrived_);
  }
}

void Pushes::pause(const Where& where, const std::string& dataset, const std::function<bool()>& begin) {
  // A flush that ends meanwhile would take rows out of the database after their version was passed over.
  const Lock one(flushing_);
  const auto name = name_of(where, dataset);
  {
    Lock lock(mu_);
    held_[name];
  }
  // However this ends, what was held meanwhile goes on, in its order.
  const auto go_on = [&] {
    Lock lock(mu_);
    auto held = std::move(held_[name]);
    held_.erase(name);
    on_their_way_[name] += static_cast<std::int64_t>(held.size());
    std::move(held.begin(), held.end(), std::back_inserter(queue_));
    queued_.notify_all();
  };
  try {
    wait_until_idle(name);
    if (begin()) {
      replay(where, dataset);
      wait_until_idle(name);
    }
  } catch (...) {
    go_on();
    throw;
  }
  go_on();
}

void Pushes::loop() {
  while (true) {
    std::vector<Queued> taken;
    {
      Lock lock(mu_);
      while (queue_.empty() && !stopping_) lock.wait(queued_);
      if (queue_.empty()) return;
      while (!queue_.empty() && taken.size() < kPushesPerCommit) {
        taken.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    apply_until_done(taken);
    Lock lock(mu_);
    for (const auto& queued : taken) {
      const auto name = name_of(queued.where, queued.dataset);
      applied_[name] = std::max(applied_[name], queued.sequence);
      --on_their_way_[name];
    }
    arrived_.notify_all();
  }
}

// The next must not overtake them: records remember only the last push they have seen.
void Pushes::apply_until_done(std::vector<Queued>& pushes) {
  for (auto wait = kFirstWait;; wait = std::min(wait * 2, kLongestWait)) {
    try {
      return apply(pushes);
    } catch (const Error& e) {
      failed_.Increment();
      log::error("push_not_online", {{"problem", e.what()}});
      Lock lock(mu_);
      // What is in the database is brought again by the next start, or with the version that it becomes a part of.
      if (stopping_ || (e.code() != Code::unavailable && e.code() != Code::exhausted && e.code() != Code::conflict))
        return;
      lock.wait_for(queued_, wait);
    }
  }
}

// What pushes that were not looked at for this view mean to it: those of before the last start, and of before it came
// online. All at once, as setting the engine up for a handful of rows takes longer than for thousands.
void Pushes::evaluate_missing(std::span<Queued*> pushes, const std::shared_ptr<const Definition>& definition) {
  Typed all;
  std::vector<Queued*> missing;
  std::vector<std::size_t> first;  // row of each
  for (auto* push : pushes) {
    if (push->find(definition->meaning)) continue;
    missing.push_back(push);
    first.push_back(all.rows.size());
    if (all.dataset.empty()) all.dataset = push->rows->dataset, all.schema = push->rows->schema;
    all.rows.insert(all.rows.end(), push->rows->rows.begin(), push->rows->rows.end());
    push->changes.push_back({definition, {}});
  }
  if (missing.empty()) return;
  for (auto& [key, events] : evaluate(all, definition).entities) {
    for (auto& happened : events) {
      const auto row = static_cast<std::size_t>(happened.event.row - 1);
      const auto push = static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), row) - first.begin() - 1);
      auto& entities = missing[push]->changes.back().entities;
      if (entities.empty() || entities.back().first != key) entities.push_back({key, {}});
      happened.event.row -= first[push];
      entities.back().second.push_back(std::move(happened));
    }
  }
}

// What pushes do to the records of one view.
class Pushes::Applying {
 public:
  Applying(std::span<Queued* const> pushes, OnlineViews::Live live, std::int64_t recent_us) : live_(std::move(live)) {
    for (const auto* push : pushes)
      for (const auto& [key, events] : push->find(live_.definition->meaning)->entities)
        entities_[key].push_back({push, &events});
    for (const auto& [key, of_key] : entities_) {
      keys_.push_back(key);
      steps_.push_back(&of_key);
    }
    change_ = [this, recent_us](std::size_t i, const std::optional<online::Row>& old) {
      return change(*steps_[i], old, recent_us);
    };
  }
  Applying(const Applying&) = delete;
  Applying& operator=(const Applying&) = delete;

  // Refers to this.
  void add_to(std::vector<online::Update>& updates) const {
    for (const auto& space : live_.spaces) updates.push_back({*space, keys_, change_});
  }

 private:
  struct Step {
    const Queued* push;
    const std::vector<lookup::Happened>* events;
  };
  std::optional<online::Changed> change(const std::vector<Step>& steps, const std::optional<online::Row>& old,
                                        std::int64_t recent_us) const {
    const auto& view = *live_.definition->view;
    auto record = old ? lookup::Record::decode(view, old->payload) : lookup::Record(view);
    for (const auto& [push, events] : steps) {
      auto numbered = *events;
      const auto sequence = static_cast<std::uint64_t>(push->sequence);
      for (auto& happened : numbered) happened.event.row |= kAfterVersions | sequence << kRowBits;
      record.push(static_cast<std::uint64_t>(push->epoch), sequence, std::move(numbered), push->as_of_us);
    }
    return changed(view, record, steps.back().push->as_of_us > recent_us);
  }

  const OnlineViews::Live live_;
  // An entity of many pushes is written once.
  std::map<BytesView, std::vector<Step>, decltype([](BytesView a, BytesView b) {
             return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
           })>
      entities_;
  std::vector<BytesView> keys_;
  std::vector<const std::vector<Step>*> steps_;
  online::Change change_;
};

void Pushes::apply(std::vector<Queued>& pushes) {
  std::map<Name, std::vector<Queued*>> by_dataset;
  for (auto& push : pushes) by_dataset[name_of(push.where, push.dataset)].push_back(&push);
  const auto recent_us = clock_.wall().count() - kPastUs;
  std::list<Applying> views;
  for (auto& [name, of_dataset] : by_dataset) {
    auto all = views_.live(of_dataset[0]->where, of_dataset[0]->dataset);
    // The others' rows come with the version they become a part of.
    std::erase_if(all, [](const OnlineViews::Live& live) { return !live.definition->row_by_row; });
    for (const auto& live : all) evaluate_missing(of_dataset, live.definition);
    for (const auto& live : all) views.emplace_back(of_dataset, live, recent_us);
  }
  // All views at once: they share the wait for the disk.
  std::vector<online::Update> updates;
  for (const auto& view : views) view.add_to(updates);
  views_.store().update(updates);
}

Bytes Pushes::header(const Where& where, const std::string& dataset, std::int64_t sequence) const {
  ByteWriter out;
  out.text(where.tenant.str());
  out.text(where.project.str());
  out.text(dataset);
  out.u64(static_cast<std::uint64_t>(sequence));
  return out.take();
}

JsonRows Pushes::open(const Where& where, const std::string& dataset, const PushedRows& rows) const {
  const auto plain = crypto::open(key_, header(where, dataset, rows.sequence), rows.sealed);
  JsonRows out;
  for (auto text = as_text(plain); !text.empty();) {
    const auto end = text.find('\n');
    out.push_back(parse_json(text.substr(0, end)).as_object());
    text.remove_prefix(end + 1);
  }
  return out;
}

void Pushes::replay(const Where& where, const std::string& dataset) {
  const auto spec = datasets_.spec(where, dataset);
  const auto name = name_of(where, dataset);
  std::int64_t after = 0;
  while (true) {
    const auto batch =
        database_.read([&](sql::Reader& r) { return read_rows(r, where, dataset, after, INT64_MAX, kRowsPerRead); });
    if (batch.empty()) return;
    for (const auto& rows : batch) {
      auto typed_rows = std::make_shared<const Typed>(typed(spec, dataset, open(where, dataset, rows)));
      after = rows.sequence;
      Lock lock(mu_);
      ++on_their_way_[name];  // past those that are held
      queue_.push_back({where, dataset, rows.sequence, rows.epoch, rows.as_of_us, std::move(typed_rows), {}});
      queued_.notify_one();
    }
  }
}

std::vector<PushedSet> Pushes::sets() {
  return database_.read([](sql::Reader& r) { return list_pushed(r); });
}

std::int64_t Pushes::waiting(const Where& where, const std::string& dataset) {
  const auto set = database_.read([&](sql::Reader& r) { return find_pushed(r, where, dataset); });
  return set ? set->waiting : 0;
}

void Pushes::forget_ids(const sql::Act& act) {
  const auto before_us = clock_.wall().count() - kIdsKeptUs;
  database_.write(act, [&](sql::Writer& w) { delete_push_ids(w, before_us); });
}

PushedSet Pushes::begin_flush(const Where& where, const std::string& dataset, const sql::Act& act) {
  const auto upload = datasets_.begin(where, dataset, act);
  return database_.write(act, [&](sql::Writer& w) {
    auto set = find_pushed(w, where, dataset);
    CHECK(set, "something was pushed");
    if (set->flushing == 0) set->flushing = set->epoch++;
    set->upload = upload;
    put_pushed(w, *set);
    return *set;
  });
}

std::optional<data::Version> Pushes::flush(const Where& where, const std::string& dataset, const sql::Act& act) {
  const Lock one(flushing_);
  auto set = database_.read([&](sql::Reader& r) { return find_pushed(r, where, dataset); });
  if (!set) datasets_.spec(where, dataset);  // throws not_found
  if (!set || (set->flushing == 0 && waiting(where, dataset) == 0)) return std::nullopt;
  if (set->flushing == 0 || !has_upload(where, *set)) set = begin_flush(where, dataset, act);
  try {
    put_parts(where, *set, act);
  } catch (const Error& e) {
    if (e.code() != Code::conflict) throw;  // the version is there: a kill came after it
  }
  // From the database they must not go before they are in the store: a kill in between would lose them there.
  wait_until_applied(name_of(where, dataset), last_sequence(where, *set));
  data::Finish how{data::Format::jsonl, data::Mode::append, "pushed rows", "", {}};
  how.promised = true;
  const auto version = datasets_.finish(where, dataset, set->upload, std::move(how), act);
  database_.write(act, [&](sql::Writer& w) {
    auto now = find_pushed(w, where, dataset);
    CHECK(now, "something was pushed");
    put_flush(w, where, dataset, version.number, now->flushing);
    now->waiting -= delete_rows(w, where, dataset, now->flushing);
    now->flushing = 0;
    now->upload.clear();
    put_pushed(w, *now);
  });
  return version;
}

std::int64_t Pushes::last_sequence(const Where& where, const PushedSet& set) {
  return database_.read(
      [&](sql::Reader& r) { return falaj::features::last_sequence(r, where, set.dataset, set.flushing); });
}

// One that nobody finished in a week is gone.
bool Pushes::has_upload(const Where& where, const PushedSet& set) {
  try {
    datasets_.parts(where, set.dataset, set.upload);
    return true;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return false;
  }
}

void Pushes::put_parts(const Where& where, const PushedSet& set, const sql::Act& act) {
  // The same bytes whenever it is done, so a kill in between changes nothing.
  std::string text;
  std::int64_t after = 0, part = 0;
  const auto put = [&] {
    std::size_t at = 0;
    datasets_.put_part(
        where, set.dataset, set.upload, part++,
        [&](std::span<std::byte> out) {
          const auto n = std::min(out.size(), text.size() - at);
          std::copy_n(as_bytes(text).begin() + static_cast<std::ptrdiff_t>(at), n, out.begin());
          at += n;
          return n;
        },
        act);
    text.clear();
  };
  constexpr std::size_t kPartBytes = 64 << 20;
  while (true) {
    const auto batch = database_.read(
        [&](sql::Reader& r) { return read_rows(r, where, set.dataset, after, set.flushing, kRowsPerRead); });
    for (const auto& rows : batch) {
      text += as_text(crypto::open(key_, header(where, set.dataset, rows.sequence), rows.sealed));
      after = rows.sequence;
      if (text.size() >= kPartBytes) put();
    }
    if (batch.empty()) break;
  }
  if (!text.empty()) put();
}

}  // namespace falaj::features
