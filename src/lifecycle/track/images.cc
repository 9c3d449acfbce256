// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/images.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/error.h"
#include "lifecycle/track/points.h"

namespace falaj::track {

namespace {

constexpr std::int64_t kPlaces = Column::kImagePlaces;
static_assert(kPlaces == 1024, "find_run and run_at divide by it");
constexpr std::size_t kValuesMin = 16;  // fewer are as quickly read from their rows
constexpr std::int64_t kRunsAtOnce = 1024, kChunksAtOnce = 32;
// New images are made for every so many new runs. One that changes counts less: it is likely to change again, and then
// its image was made for nothing.
constexpr std::int64_t kMadeMax = 256, kMadeWeight = 4;

// How columns are called in the database, for ever.
constexpr std::int64_t stored(Entity entity) {
  switch (entity) {
    case Entity::attribute:
      return 1;
    case Entity::param:
      return 2;
    case Entity::tag:
      return 3;
    case Entity::metric:
      return 4;
    case Entity::dataset:
      break;
  }
  return 0;
}

constexpr Entity kEntities[] = {Entity::attribute, Entity::param, Entity::tag, Entity::metric};

// In the order in which the queries below name them, after the place.
constexpr const char* kAttributes[] = {"run_id", "run_name", "user_id", "status", "stage", "start_time", "end_time"};

int attribute_at(const std::string& key) {
  for (int i = 0; i < static_cast<int>(std::size(kAttributes)); ++i)
    if (key == kAttributes[i]) return i + 1;
  throw Error(Code::internal, "a filter names an attribute that runs do not have: " + key);
}

// Values that come run by run. Of several series of one metric (of several models, say) the newest point is the run's.
class Setter {
 public:
  explicit Setter(Column& column, std::int64_t first = 0) : column_(column), first_(first) {}
  void text(std::int64_t place, const sql::Row& row, int at) {
    if (row.is_null(at))
      column_.clear(index(place));
    else
      column_.set(index(place), row.text(at));
  }
  void time(std::int64_t place, const sql::Row& row, int at) {
    if (row.is_null(at))
      column_.clear(index(place));
    else
      column_.set(index(place), static_cast<double>(row.integer(at)));
  }
  // Value, unix_ms and step from `at` on; Requires: the points of a run follow each other.
  void point(std::int64_t place, const sql::Row& row, int at) {
    if (row.is_null(at + 1)) return column_.clear(index(place));
    const Point point{row.integer(at + 1), row.integer(at + 2), row.is_null(at) ? std::nan("") : row.real(at)};
    if (place == place_ && !newer(point, newest_)) return;
    place_ = place;
    newest_ = point;
    column_.set(index(place), point.value);
  }
  void attribute(std::int64_t place, const sql::Row& row, int at) {
    column_.type() == Column::Type::number ? time(place, row, at) : text(place, row, at);
  }

 private:
  std::size_t index(std::int64_t place) const { return static_cast<std::size_t>(place - first_); }
  Column& column_;
  const std::int64_t first_;
  std::int64_t place_ = -1;
  Point newest_;
};

// From the rows of the runs from `first` on, before `end`. The index that has the key finds the rows, and only then is
// each read: SQLite by itself would rather read all rows of the experiment.
void read_rows(sql::Reader& r, std::int64_t experiment, const ColumnKey& key, std::int64_t first, std::int64_t end,
               Setter set) {
  if (key.entity == Entity::param) {
    r.query(
        "SELECT p.place, p.value FROM track_param k CROSS JOIN track_param p WHERE k.experiment = ? AND k.key = ?"
        " AND k.place >= ? AND k.place < ? AND p.experiment = k.experiment AND p.place = k.place AND p.key = k.key",
        {experiment, key.key, first, end}, [&](const sql::Row& row) { set.text(row.integer(0), row, 1); });
  } else if (key.entity == Entity::tag) {
    r.query(
        "SELECT t.place, t.value FROM track_tag k CROSS JOIN track_tag t WHERE k.experiment = ? AND k.key = ?"
        " AND k.place >= ? AND k.place < ? AND t.experiment = k.experiment AND t.place = k.place AND t.key = k.key",
        {experiment, key.key, first, end}, [&](const sql::Row& row) { set.text(row.integer(0), row, 1); });
  } else if (key.entity == Entity::metric) {
    r.query(
        "SELECT m.place, m.value, m.unix_ms, m.step FROM track_metric k CROSS JOIN track_metric m"
        " WHERE k.experiment = ? AND k.key = ? AND k.place >= ? AND k.place < ? AND m.experiment = k.experiment"
        " AND m.place = k.place AND m.key = k.key AND m.model = k.model AND m.dataset = k.dataset"
        " AND m.digest = k.digest ORDER BY k.place",
        {experiment, key.key, first, end}, [&](const sql::Row& row) { set.point(row.integer(0), row, 1); });
  } else {
    r.query(
        "SELECT place, run_id, name, user_id, status, stage, start_ms, end_ms FROM track_run WHERE experiment = ?"
        " AND place >= ? AND place < ?",
        {experiment, first, end},
        [&, at = attribute_at(key.key)](const sql::Row& row) { set.attribute(row.integer(0), row, at); });
  }
}

// From the rows of all runs of which images do not say the truth.
void read_unimaged(sql::Reader& r, std::int64_t experiment, const ColumnKey& key, Setter set) {
  if (key.entity == Entity::param) {
    r.query(
        "SELECT u.place, p.value FROM track_unimaged u LEFT JOIN track_param p ON p.experiment = u.experiment"
        " AND p.place = u.place AND p.key = ? WHERE u.experiment = ?",
        {key.key, experiment}, [&](const sql::Row& row) { set.text(row.integer(0), row, 1); });
  } else if (key.entity == Entity::tag) {
    r.query(
        "SELECT u.place, t.value FROM track_unimaged u LEFT JOIN track_tag t ON t.experiment = u.experiment"
        " AND t.place = u.place AND t.key = ? WHERE u.experiment = ?",
        {key.key, experiment}, [&](const sql::Row& row) { set.text(row.integer(0), row, 1); });
  } else if (key.entity == Entity::metric) {
    r.query(
        "SELECT u.place, m.value, m.unix_ms, m.step FROM track_unimaged u LEFT JOIN track_metric m ON"
        " m.experiment = u.experiment AND m.place = u.place AND m.key = ? WHERE u.experiment = ?"
        " ORDER BY u.chunk, u.place",
        {key.key, experiment}, [&](const sql::Row& row) { set.point(row.integer(0), row, 1); });
  } else {
    r.query(
        "SELECT u.place, r.run_id, r.name, r.user_id, r.status, r.stage, r.start_ms, r.end_ms FROM track_unimaged u"
        " CROSS JOIN track_run r WHERE u.experiment = ? AND r.experiment = u.experiment AND r.place = u.place",
        {experiment}, [&, at = attribute_at(key.key)](const sql::Row& row) { set.attribute(row.integer(0), row, at); });
  }
}

Column artifact_uris(sql::Reader& r, std::int64_t experiment) {
  Column out(Column::Type::text);
  const auto number = r.first("SELECT number FROM track_experiment WHERE id = ?", {experiment},
                              [](const sql::Row& row) { return row.integer(0); });
  if (!number) return out;
  const auto ids = load_column(r, experiment, {Entity::attribute, "run_id"});
  RunInfo info;
  info.experiment = *number;
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (!ids.has(place)) continue;
    info.run_id = ids.text(place);
    out.set(place, artifact_uri(info));
  }
  return out;
}

// The images of kPlaces runs brought up to date.
class Chunk {
 public:
  Chunk(sql::Writer& writer, std::int64_t experiment, std::int64_t number)
      : w_(writer), experiment_(experiment), number_(number), first_(number * kPlaces), end_(first_ + kPlaces) {}

  std::int64_t make() {
    // A chunk without any image is made as a whole.
    if (!w_.first("SELECT 1 FROM track_image WHERE experiment = ? AND chunk = ? LIMIT 1", {experiment_, number_},
                  [](const sql::Row&) { return true; }))
      w_.execute(
          "INSERT INTO track_unimaged(experiment, chunk, place) SELECT experiment, CAST(? AS BIGINT), place FROM"
          " track_run WHERE experiment = ? AND place >= ? AND place < ? ON CONFLICT DO NOTHING",
          {number_, experiment_, first_, end_});
    read();
    update();
    insert();
    return w_.execute("DELETE FROM track_unimaged WHERE experiment = ? AND chunk = ?", {experiment_, number_});
  }

 private:
  using Named = std::map<std::string, Column, std::less<>>;

  Column& column(Entity entity, std::string_view key) {
    auto& named = fresh_[stored(entity)];
    const auto found = named.find(key);
    if (found != named.end()) return found->second;
    return named.emplace(key, Column(Column::type_of({entity, std::string(key)}))).first->second;
  }

  // What the rows say of the runs without images.
  void read() {
    std::vector<Column*> attributes;
    for (const auto* key : kAttributes) attributes.push_back(&column(Entity::attribute, key));
    w_.query(
        "SELECT u.place, r.run_id, r.name, r.user_id, r.status, r.stage, r.start_ms, r.end_ms FROM track_unimaged u"
        " CROSS JOIN track_run r WHERE u.experiment = ? AND u.chunk = ? AND r.experiment = u.experiment"
        " AND r.place = u.place",
        {experiment_, number_}, [&](const sql::Row& row) {
          places_.push_back(row.integer(0));
          int at = 1;
          for (auto* column : attributes) Setter(*column, first_).attribute(places_.back(), row, at++);
        });
    w_.query(
        "SELECT p.place, p.key, p.value FROM track_unimaged u CROSS JOIN track_param p WHERE u.experiment = ?"
        " AND u.chunk = ? AND p.experiment = u.experiment AND p.place = u.place",
        {experiment_, number_},
        [&](const sql::Row& row) { Setter(column(Entity::param, row.text(1)), first_).text(row.integer(0), row, 2); });
    w_.query(
        "SELECT t.place, t.key, t.value FROM track_unimaged u CROSS JOIN track_tag t WHERE u.experiment = ?"
        " AND u.chunk = ? AND t.experiment = u.experiment AND t.place = u.place",
        {experiment_, number_},
        [&](const sql::Row& row) { Setter(column(Entity::tag, row.text(1)), first_).text(row.integer(0), row, 2); });
    std::map<std::string, Setter, std::less<>> setters;
    w_.query(
        "SELECT m.place, m.key, m.value, m.unix_ms, m.step FROM track_unimaged u CROSS JOIN track_metric m"
        " WHERE u.experiment = ? AND u.chunk = ? AND m.experiment = u.experiment AND m.place = u.place"
        " ORDER BY u.place",
        {experiment_, number_}, [&](const sql::Row& row) {
          const auto key = row.text(1);
          auto found = setters.find(key);
          if (found == setters.end()) found = setters.emplace(key, Setter(column(Entity::metric, key), first_)).first;
          found->second.point(row.integer(0), row, 2);
        });
  }

  // Those that are there.
  void update() {
    struct Old {
      Entity entity;
      std::string key;
      Bytes image;
    };
    const auto all = w_.all("SELECT entity, key, data FROM track_image WHERE experiment = ? AND chunk = ?",
                            {experiment_, number_}, [](const sql::Row& row) {
                              const auto bytes = row.bytes(2);
                              const auto entity = row.integer(0);
                              for (const auto one : kEntities)
                                if (stored(one) == entity)
                                  return Old{one, std::string(row.text(1)), Bytes(bytes.begin(), bytes.end())};
                              throw Error(Code::corrupt, "an image of a column that runs do not have");
                            });
    for (const auto& old : all) {
      Column now(Column::type_of({old.entity, old.key}));
      now.read_image(0, old.image);
      auto& named = fresh_[stored(old.entity)];
      const auto fresh = named.find(old.key);
      for (const auto place : places_) {
        const auto at = static_cast<std::size_t>(place - first_);
        if (fresh == named.end() || !fresh->second.has(at))
          now.clear(at);
        else if (now.type() == Column::Type::number)
          now.set(at, fresh->second.number(at));
        else
          now.set(at, fresh->second.text(at));
      }
      if (fresh != named.end()) named.erase(fresh);
      const auto image = now.image(0);
      if (image != old.image)
        w_.execute("UPDATE track_image SET data = ? WHERE experiment = ? AND entity = ? AND key = ? AND chunk = ?",
                   {BytesView(image), experiment_, stored(old.entity), old.key, number_});
    }
  }

  // Those that are worth it now. What imaged runs have of a key that had no image is still to be read.
  void insert() {
    const auto runs = *w_.first("SELECT COUNT(*) FROM track_run WHERE experiment = ? AND place >= ? AND place < ?",
                                {experiment_, first_, end_}, [](const sql::Row& row) { return row.integer(0); });
    const bool complete = runs == static_cast<std::int64_t>(places_.size());
    for (const auto entity : kEntities)
      for (auto& [key, column] : fresh_[stored(entity)]) {
        if (!complete) read_rows(w_, experiment_, {entity, key}, first_, end_, Setter(column, first_));
        if (column.count() < kValuesMin) continue;
        const auto image = column.image(0);
        w_.execute("INSERT INTO track_image(experiment, entity, key, chunk, data) VALUES (?, ?, ?, ?, ?)",
                   {experiment_, stored(entity), key, number_, BytesView(image)});
      }
  }

  sql::Writer& w_;
  const std::int64_t experiment_, number_, first_, end_;
  std::vector<std::int64_t> places_;     // of runs without images
  std::map<std::int64_t, Named> fresh_;  // what they have, by entity
};

}  // namespace

Column load_column(sql::Reader& reader, std::int64_t experiment, const ColumnKey& key) {
  if (key.entity == Entity::attribute && key.key == "artifact_uri") return artifact_uris(reader, experiment);
  Column column(Column::type_of(key));
  std::int64_t next = 0;  // the first place that nothing was read of
  reader.query("SELECT chunk, data FROM track_image WHERE experiment = ? AND entity = ? AND key = ? ORDER BY chunk",
               {experiment, stored(key.entity), key.key}, [&](const sql::Row& row) {
                 const auto first = row.integer(0) * kPlaces;
                 if (next < first) read_rows(reader, experiment, key, next, first, Setter(column));
                 column.read_image(static_cast<std::size_t>(first), row.bytes(1));
                 next = first + kPlaces;
               });
  if (next > 0) read_unimaged(reader, experiment, key, Setter(column));
  read_rows(reader, experiment, key, next, std::numeric_limits<std::int64_t>::max(), Setter(column));
  return column;
}

void Images::list(sql::Writer& writer, const RunRow& row, std::int64_t weight) {
  writer.execute("INSERT INTO track_unimaged(experiment, chunk, place) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                 {row.experiment, row.place / kPlaces, row.place});
  {
    // A write that is undone was counted for nothing: then images are made a little early.
    Lock lock(mu_);
    auto [waiting, first] = waiting_.try_emplace(row.experiment, 0);
    if (first)
      waiting->second = *writer.first("SELECT COUNT(*) FROM track_unimaged WHERE experiment = ?", {row.experiment},
                                      [](const sql::Row& r) { return r.integer(0); });
    waiting->second += weight;
    if (waiting->second < kMadeMax * kMadeWeight) return;
    waiting->second = 0;
  }
  make(writer, row.experiment);
}

void Images::made(sql::Writer& writer, const RunRow& row) { list(writer, row, kMadeWeight); }

void Images::changed(sql::Writer& writer, const RunRow& row) {
  if (!row.unimaged) list(writer, row, 1);
}

void Images::stages_changed(sql::Writer& writer, std::int64_t experiment) {
  writer.execute("DELETE FROM track_image WHERE experiment = ? AND entity = ? AND key = 'stage'",
                 {experiment, stored(Entity::attribute)});
}

void Images::removed(sql::Writer& writer, const RunRow& row) {
  const auto chunk = row.place / kPlaces;
  writer.execute("DELETE FROM track_image WHERE experiment = ? AND chunk = ?", {row.experiment, chunk});
  writer.execute("DELETE FROM track_unimaged WHERE experiment = ? AND chunk = ? AND place = ?",
                 {row.experiment, chunk, row.place});
}

std::int64_t Images::make(sql::Writer& writer, std::int64_t experiment) {
  // Where most is to be done first: a few changes here and there wait for company.
  const auto chunks =
      writer.all("SELECT chunk FROM track_unimaged WHERE experiment = ? GROUP BY chunk ORDER BY COUNT(*) DESC LIMIT ?",
                 {experiment, kChunksAtOnce}, [](const sql::Row& row) { return row.integer(0); });
  std::int64_t runs = 0;
  for (const auto chunk : chunks) {
    runs += Chunk(writer, experiment, chunk).make();
    if (runs >= kRunsAtOnce) break;
  }
  return runs;
}

void Images::make(sql::Writer& writer, const Place& place) { Chunk(writer, place.experiment, place.chunk).make(); }

std::optional<Images::Place> Images::missing(sql::Reader& reader) {
  struct Size {
    std::int64_t experiment, runs;
  };
  const auto large =
      reader.all("SELECT id, runs FROM track_experiment WHERE runs >= ?", {kMadeMax}, [](const sql::Row& row) {
        return Size{row.integer(0), row.integer(1)};
      });
  for (const auto& size : large) {
    std::vector<bool> there(static_cast<std::size_t>(size.runs / kPlaces + 1));
    reader.query("SELECT DISTINCT chunk FROM track_image WHERE experiment = ?", {size.experiment},
                 [&](const sql::Row& row) { there[static_cast<std::size_t>(row.integer(0))] = true; });
    for (std::int64_t chunk = 0; chunk < static_cast<std::int64_t>(there.size()); ++chunk) {
      if (there[static_cast<std::size_t>(chunk)]) continue;
      const auto runs =
          *reader.first("SELECT COUNT(*) FROM track_run WHERE experiment = ? AND place >= ? AND place < ?",
                        {size.experiment, chunk * kPlaces, (chunk + 1) * kPlaces},
                        [](const sql::Row& row) { return row.integer(0); });
      if (runs >= static_cast<std::int64_t>(kValuesMin)) return Place{size.experiment, chunk};
    }
  }
  return std::nullopt;
}

}  // namespace falaj::track
