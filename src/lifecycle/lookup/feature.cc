// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/feature.h"

#include <algorithm>

namespace falaj::lookup {
namespace {

FeatureCell window_cell(const Cell& cell, Type type) {
  FeatureCell out;
  out.status = cell ? Status::present : Status::null;
  if (!cell) return out;
  if (type == Type::int64)
    out.whole = static_cast<std::int64_t>(*cell);
  else
    out.real = *cell;
  return out;
}

// Points into `value`.
FeatureCell computed_cell(const Value& value) {
  FeatureCell out;
  out.status = std::holds_alternative<std::monostate>(value) ? Status::null : Status::present;
  if (const auto* flag = std::get_if<bool>(&value)) out.whole = *flag;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) out.whole = *whole;
  if (const auto* real = std::get_if<double>(&value)) out.real = *real;
  if (const auto* text = std::get_if<std::string>(&value)) out.text = *text;
  return out;
}

FeatureCell row_cell(const Found& found, const Place& place) {
  FeatureCell out;
  out.status = found.row;
  out.event_us = found.row == Status::missing ? 0 : found.event_us;
  if (!found.columns) return out;
  const auto& row = *found.columns;
  if (row.is_null(place.index)) {
    out.status = Status::null;
    return out;
  }
  switch (place.type) {
    case Type::boolean:
      out.whole = row.boolean(place.index);
      break;
    case Type::float32:
    case Type::float64:
      out.real = row.real(place.index);
      break;
    case Type::text:
    case Type::bytes:
      out.text = row.text(place.index);
      break;
    default:
      out.whole = row.integer(place.index);
  }
  return out;
}

}  // namespace

std::optional<Place> find_place(const View& view, const Computed& computed, std::string_view feature) {
  for (std::size_t i = 0; i < view.rows.size(); ++i)
    if (view.rows[i].name == feature) return Place{Place::In::row, i, view.rows[i].type};
  for (std::size_t i = 0; i < view.window_names.size(); ++i)
    if (view.window_names[i] == feature)
      return Place{Place::In::window, i, is_whole(view.windows.features()[i].aggregate) ? Type::int64 : Type::float64};
  for (std::size_t i = 0; i < computed.size(); ++i)
    if (computed.name(i) == feature) return Place{Place::In::computed, i, computed.type(i)};
  return std::nullopt;
}

bool computes(std::span<const Place> places) {
  return std::any_of(places.begin(), places.end(), [](const Place& place) { return place.in == Place::In::computed; });
}

void read_features(online::Snapshot* snapshot, const Reading& reading, std::int64_t as_of_us, std::size_t first,
                   FeatureSink& into) {
  const auto& places = reading.places;
  const bool with_request = computes(places);
  std::vector<Value> fields(with_request ? reading.request.size() : 0);
  Computed::Inputs inputs;
  const auto tell = [&](std::size_t i, const Found& found) {
    for (std::size_t f = 0; f < fields.size(); ++f) fields[f] = (*reading.request[f])[i];
    if (with_request) reading.computed.load(inputs, fields, found);
    for (std::size_t f = 0; f < places.size(); ++f) {
      const auto& place = places[f];
      if (place.in == Place::In::row)
        into.add(first + f, i, row_cell(found, place));
      else if (place.in == Place::In::window)
        into.add(first + f, i, window_cell(found.windows[place.index], place.type));
      else
        into.add(first + f, i, computed_cell(reading.computed.compute(place.index, inputs)));
    }
  };
  if (!reading.space) {
    for (std::size_t i = 0; i < reading.entities; ++i) tell(i, {});
    return;
  }
  read(*snapshot, *reading.space, reading.view, reading.keys, as_of_us, tell);
  snapshot->clear();
}

bool has_mark(online::Snapshot& snapshot, const online::Space& space) {
  const BytesView key[] = {kWholeMark};
  std::optional<online::Row> row[1];
  snapshot.get(space, key, row);
  snapshot.clear();
  return row[0].has_value();
}

}  // namespace falaj::lookup
