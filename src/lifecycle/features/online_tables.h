// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: what the database knows of what is online.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/data/types.h"
#include "storage/sql/database.h"

namespace falaj::features {

using data::Where;

std::span<const sql::Migration> online_migrations();

// How rows of a dataset version come online: all of them into a new generation, which is read when it is whole, or what
// is new since the last pass into the one that is there.
struct Pass {
  std::int64_t number = 0, generation = 0;
  std::int64_t version = 0;  // of the dataset
  std::int64_t rows = 0;     // of that version
  std::int64_t end_us = 0;   // events up to then
  std::int64_t beyond = 0;   // rows of the version that happened later, and were left out
};

// One feature over all entities that a full pass wrote, as of its end.
struct Measured {
  std::string name;
  std::int64_t entities = 0, nulls = 0;
  std::optional<double> mean, deviation, distance;  // from what the full pass before measured
  std::vector<double> quantiles;                    // 0.01 0.05 0.25 0.5 0.75 0.95 0.99
  std::string sketch;                               // to compare the next with, in base64
};

struct OnlineState {
  std::optional<Pass> done;     // what is read
  std::optional<Pass> running;  // begun and not done: it is gone on with, or replaced by one into a new generation
  std::int64_t passes = 0, generations = 0, swept = 0;  // numbers given so far; generations up to `swept` are erased
  std::string problem;                                  // of the last pass, "" = none
  std::vector<Measured> measured;
  std::int64_t changed_us = 0;
};

// One meaning of a view that is, or was, online.
struct OnlineView : OnlineState {
  OnlineView() = default;
  OnlineView(const Digest& what, Where in, std::string name, std::int64_t at_revision, std::string of,
             OnlineState state)
      : OnlineState(std::move(state)),
        meaning(what),
        where(std::move(in)),
        view(std::move(name)),
        revision(at_revision),
        dataset(std::move(of)) {}

  Digest meaning;
  Where where;
  std::string view;
  std::int64_t revision = 0;
  std::string dataset;
};

std::optional<OnlineView> find_view(sql::Reader& r, const Digest& meaning);
std::vector<OnlineView> list_views(sql::Reader& r, const std::optional<Where>& where);
void put_view(sql::Writer& w, const OnlineView& view);
void delete_view(sql::Writer& w, const Digest& meaning);

// The store that the views are in, by a name that it has too.
std::string store_id(sql::Reader& r);  // "" = none yet
void put_store_id(sql::Writer& w, const std::string& id);

// ---- rows that were pushed and are in no version yet
struct PushedRows {
  std::int64_t sequence = 0, epoch = 0;
  std::int64_t as_of_us = 0;  // when they were taken in
  std::int64_t rows = 0;
  Bytes sealed;
};
struct PushedSet {  // of one dataset
  Where where;
  std::string dataset;
  std::int64_t epoch = 1, sequence = 0;
  std::int64_t flushing = 0;  // this epoch and those before are becoming a version; 0 = none is
  std::string upload;         // by which that version can be found again
  std::int64_t waiting = 0;   // rows that are in no version
};
std::optional<PushedSet> find_pushed(sql::Reader& r, const Where& where, const std::string& dataset);
std::vector<PushedSet> list_pushed(sql::Reader& r);
void put_pushed(sql::Writer& w, const PushedSet& set);
void insert_rows(sql::Writer& w, const Where& where, const std::string& dataset, const PushedRows& rows);
std::vector<PushedRows> read_rows(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t after,
                                  std::int64_t through_epoch, std::int64_t limit);
std::int64_t last_sequence(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t through_epoch);
// Returns how many rows that were.
std::int64_t delete_rows(sql::Writer& w, const Where& where, const std::string& dataset, std::int64_t through_epoch);
// The push that had this id, if there was one.
std::optional<std::int64_t> find_push_id(sql::Reader& r, const Where& where, const std::string& dataset,
                                         const std::string& id);
void put_push_id(sql::Writer& w, const Where& where, const std::string& dataset, const std::string& id,
                 std::int64_t sequence, std::int64_t at_us);
std::int64_t delete_push_ids(sql::Writer& w, std::int64_t before_us);

// Which epochs of pushed rows are rows of a version.
void put_flush(sql::Writer& w, const Where& where, const std::string& dataset, std::int64_t version,
               std::int64_t epoch);
std::int64_t covered_by(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t version);

}  // namespace falaj::features

template <>
struct falaj::Shape<falaj::features::Measured> {
  using T = features::Measured;
  static constexpr std::string_view name = "MeasuredFeature";
  static Fields fields() {
    return {
        field("name", &T::name, "The feature."),
        field("entities", &T::entities, "Over how many entities."),
        field("nulls", &T::nulls, "For how many it is null."),
        field("mean", &T::mean, "Of numbers."),
        field("deviation", &T::deviation, "Standard deviation, of numbers."),
        field("distance", &T::distance, "Greatest difference of the distribution from the full pass before (0 to 1)."),
        field("quantiles", &T::quantiles, "0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99; of numbers."),
        field("sketch", &T::sketch, "The distribution, to compare others with.")};
  }
};
template <>
struct falaj::Shape<falaj::features::Pass> {
  using T = features::Pass;
  static constexpr std::string_view name = "Pass";
  static Fields fields() {
    return {
        field("number", &T::number, "Counts up."),         field("generation", &T::generation, "Where it went."),
        field("version", &T::version, "Of the dataset."),  field("rows", &T::rows, "Of that version."),
        field("end_us", &T::end_us, "Events up to then."), field("beyond", &T::beyond, "Rows that happened later.")};
  }
};
template <>
struct falaj::Shape<falaj::features::OnlineState> {
  using T = features::OnlineState;
  static constexpr std::string_view name = "OnlineState";
  static Fields fields() {
    return {field("done", &T::done, "What is read."),
            field("running", &T::running, "What was begun."),
            field("passes", &T::passes, "Numbers given."),
            field("generations", &T::generations, "Numbers given."),
            field("swept", &T::swept, "Up to which generations are erased."),
            field("problem", &T::problem, "The last."),
            field("measured", &T::measured, "By the last full pass."),
            field("changed_us", &T::changed_us, "When.")};
  }
};
