// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/view.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/record.h"

namespace falaj::lookup {
namespace {

std::vector<Type> types_of(const std::vector<Column>& columns) {
  std::vector<Type> out;
  for (const auto& column : columns) out.push_back(column.type);
  return out;
}

[[noreturn]] void refuse_key(std::size_t index, std::string_view why) {
  throw Error(Code::invalid, fmt::format("entity key: value {} {}", index + 1, why));
}

}  // namespace

View::View(std::uint32_t version, std::vector<Type> key_types, std::vector<Column> row_columns, Windows all_windows,
           std::vector<std::string> names_of_windows, std::optional<std::int64_t> time_to_live_us)
    : key(std::move(key_types)),
      rows(std::move(row_columns)),
      layout(version, types_of(rows)),
      windows(std::move(all_windows)),
      window_names(std::move(names_of_windows)),
      ttl_us(time_to_live_us) {
  CHECK(window_names.size() == windows.features().size(), "every feature has a name");
}

Bytes entity_key(std::span<const Type> types, std::span<const Value> values) {
  CHECK(types.size() == values.size(), "a key has as many values as columns");
  ByteWriter out;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto& value = values[i];
    if (std::holds_alternative<std::monostate>(value)) refuse_key(i, "is null");
    switch (types[i]) {
      case Type::boolean:
        if (!std::holds_alternative<bool>(value)) refuse_key(i, "must be true or false");
        out.u8(std::get<bool>(value) ? 1 : 0);
        break;
      case Type::int32:
      case Type::int64:
      case Type::date:
      case Type::timestamp:
        if (!std::holds_alternative<std::int64_t>(value)) refuse_key(i, "must be a whole number");
        out.u64(static_cast<std::uint64_t>(std::get<std::int64_t>(value)));
        break;
      case Type::float32:
      case Type::float64: {
        double number = 0;
        if (const auto* whole = std::get_if<std::int64_t>(&value))
          number = static_cast<double>(*whole);
        else if (const auto* real = std::get_if<double>(&value))
          number = *real;
        else
          refuse_key(i, "must be a number");
        out.u64(std::bit_cast<std::uint64_t>(number == 0 ? 0.0 : number));  // one zero
        break;
      }
      case Type::text:
      case Type::bytes:
        if (!std::holds_alternative<std::string>(value)) refuse_key(i, "must be text");
        out.text(std::get<std::string>(value));
        break;
    }
  }
  return out.take();
}

namespace {

constexpr std::size_t kBlock = 64;  // entities that are opened before they are looked at: as many as a cache holds

// `rows` as many as keys: on the caller's stack, since a call for one entity should not ask the heap for anything.
void read_block(online::Snapshot& snapshot, const online::Space& space, const View& view,
                std::span<const BytesView> keys, std::size_t first, std::int64_t as_of_us,
                std::span<std::optional<online::Row>> rows, Record::Answer& answer,
                const std::function<void(std::size_t, const Found&)>& each) {
  snapshot.get(space, keys, rows);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!rows[i]) {
      Record(view).read(as_of_us, answer);
    } else if (!Record::read_in_place(view, rows[i]->payload, as_of_us, answer)) {
      const auto record = Record::decode(view, rows[i]->payload);
      record.read(as_of_us, answer);
      each(first + i, answer.found);
      continue;  // what was found points into the record
    }
    each(first + i, answer.found);
  }
}

}  // namespace

void read(online::Snapshot& snapshot, const online::Space& space, const View& view, std::span<const BytesView> keys,
          std::int64_t as_of_us, const std::function<void(std::size_t, const Found&)>& each) {
  Record::Answer answer;
  if (keys.size() == 1) {
    std::optional<online::Row> row[1];
    read_block(snapshot, space, view, keys, 0, as_of_us, row, answer, each);
    return;
  }
  std::optional<online::Row> rows[kBlock];
  for (std::size_t at = 0; at < keys.size(); at += kBlock) {
    const auto n = std::min(kBlock, keys.size() - at);
    read_block(snapshot, space, view, keys.subspan(at, n), at, as_of_us, std::span(rows).first(n), answer, each);
  }
}

}  // namespace falaj::lookup
