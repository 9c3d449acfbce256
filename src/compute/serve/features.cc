// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/features.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/lookup/values.h"

namespace falaj::serve {
namespace {

using lookup::FeatureCell;
using lookup::Type;

constexpr int kReadTries = 10;
constexpr std::size_t kCellsMax = 1'000'000;  // features that one request may have looked up
constexpr std::string_view kStatusNames[] = {"present", "null", "missing", "expired"};  // of online::Status

Type type_of(const traffic::FeatureColumn& column) {
  const auto type = lookup::parse_type(column.type);
  if (!type)
    throw Error(Code::invalid, fmt::format("'{}' is of a type '{}' that is not known here", column.name, column.type));
  return *type;
}

std::vector<lookup::Column> columns_in(const std::vector<traffic::FeatureColumn>& planned) {
  std::vector<lookup::Column> out;
  for (const auto& column : planned) out.push_back({column.name, type_of(column)});
  return out;
}

std::shared_ptr<const lookup::View> make_view(const traffic::FeatureView& plan) {
  std::vector<Type> key;
  for (const auto& column : plan.key) key.push_back(type_of(column));
  std::vector<lookup::WindowFeature> windows;
  std::vector<std::string> names;
  for (const auto& window : plan.windows) {
    const auto aggregate = lookup::parse_aggregate(window.aggregate);
    if (!aggregate)
      throw Error(Code::invalid, fmt::format("'{}' is a {} that is not known here", window.name, window.aggregate));
    windows.push_back({*aggregate, static_cast<std::size_t>(window.input), window.window_us});
    names.push_back(window.name);
  }
  return std::make_shared<const lookup::View>(static_cast<std::uint32_t>(plan.layout), std::move(key),
                                              columns_in(plan.rows), lookup::Windows(plan.tile_us, std::move(windows)),
                                              std::move(names), plan.ttl_us);
}

lookup::Value value_in(const FeatureCell& cell, Type type) {
  if (cell.status != online::Status::present) return {};
  switch (type) {
    case Type::boolean:
      return cell.whole != 0;
    case Type::float32:
    case Type::float64:
      return cell.real;
    case Type::text:
    case Type::bytes:
      return std::string(cell.text);
    default:
      return cell.whole;
  }
}

// As a row would say it for that input: times as the microseconds that the trainer's models take, where those fit.
json::value value_for(const FeatureCell& cell, Type type, const graph::Port& input) {
  const bool is_time = type == Type::date || type == Type::timestamp;
  if (is_time && (input.element == graph::Element::float64 || input.element == graph::Element::int64))
    return cell.whole * (type == Type::date ? lookup::kDayUs : 1);
  return lookup::to_json(value_in(cell, type), type);
}

// Whether a feature of the type can be put where it belongs as a number: by far the most are so, and need no JSON.
bool goes_straight(Type type, const graph::Port& input) {
  const bool is_double = input.element == graph::Element::float64;
  if ((!is_double && input.element != graph::Element::float32) || input.shape.empty()) return false;
  for (std::size_t i = 1; i < input.shape.size(); ++i)
    if (!std::holds_alternative<std::int64_t>(input.shape[i]) || std::get<std::int64_t>(input.shape[i]) != 1)
      return false;
  if (type == Type::date || type == Type::timestamp) return is_double;
  return type != Type::text && type != Type::bytes;
}

double number_in(const FeatureCell& cell, Type type) {
  if (cell.status != online::Status::present) return std::numeric_limits<double>::quiet_NaN();
  if (type == Type::float32 || type == Type::float64) return cell.real;
  return static_cast<double>(cell.whole * (type == Type::date ? lookup::kDayUs : 1));
}

bool takes_null(const graph::Port& input) {
  return input.element == graph::Element::float32 || input.element == graph::Element::float64 ||
         input.element == graph::Element::text;
}

std::string names_in(const std::set<std::string, std::less<>>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.substr(0, 500);
}

}  // namespace

std::shared_ptr<const online::Space> space_of(const traffic::SpaceKeys& keys) {
  const auto prefix = from_hex(keys.space);
  online::Space::Secret secret{{}, crypto::Key::from(from_hex(keys.address)), {}};
  if (prefix.size() != secret.prefix.size()) throw Error(Code::corrupt, "a space has a name of another length");
  std::copy(prefix.begin(), prefix.end(), secret.prefix.begin());
  for (const auto& numbered : keys.keys)
    secret.keys.push_back({static_cast<std::uint32_t>(numbered.number), crypto::Key::from(from_hex(numbered.key))});
  return std::make_shared<const online::Space>(std::move(secret));
}

// ---- what was found, as rows

class EndpointFeatures::Filling final : public lookup::FeatureSink {
 public:
  Filling(const EndpointFeatures& of, const json::array& given, std::span<const graph::Port> inputs, bool explains)
      : of_(of), given_(given), explains_(explains) {
    for (std::size_t v = 0; v < of.views_.size(); ++v) {
      const auto& view = of.views_[v];
      for (std::size_t f = 0; f < view.places.size(); ++f)
        features_.push_back({view.plan, v, &view.plan->features[f], view.places[f].type, nullptr, nullptr});
    }
    tensors_.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& input = inputs[i];
      const auto found = of.features_.find(input.name);
      if (found == of.features_.end()) {
        others_.push_back(&input);
        continue;
      }
      auto& feature = features_[found->second];
      feature.input = &input;
      if (!goes_straight(feature.type, input)) continue;
      graph::Sizes sizes(input.shape.size(), 1);
      sizes[0] = static_cast<std::int64_t>(given.size());
      tensors_[i] = graph::Tensor::empty(input.element, std::move(sizes));
      feature.column = &tensors_[i];
    }
  }

  void begin() override {
    rows_.clear();
    rows_.reserve(given_.size());
    for (const auto& given : given_) {
      json::object row;
      for (const auto* input : others_)
        if (const auto* value = given.get_object().if_contains(input->name)) row.emplace(input->name, *value);
      rows_.push_back(std::move(row));
    }
    std::fill(std::begin(by_status_), std::end(by_status_), 0);
    columns_.assign(explains_ ? features_.size() : 0, {});
    times_.assign(given_.size() * of_.views_.size(), 0);
  }

  void add(std::size_t number, std::size_t row, const FeatureCell& cell) override {
    const auto& feature = features_[number];
    ++by_status_[static_cast<std::size_t>(cell.status)];
    auto& newest = times_[row * of_.views_.size() + feature.place];
    newest = std::max(newest, cell.event_us);
    if (explains_) columns_[number].add(cell, feature.type);
    if (!feature.input) return;  // the service has more than this model takes
    if (feature.column) return put(*feature.column, row, number_in(cell, feature.type));
    const bool is_real = feature.type == Type::float32 || feature.type == Type::float64;
    if (cell.status == online::Status::present && !(is_real && !std::isfinite(cell.real))) {
      rows_[row].get_object().emplace(*feature.name, value_for(cell, feature.type, *feature.input));
    } else if (!takes_null(*feature.input)) {
      throw Error(Code::invalid, fmt::format("rows[{}]: feature '{}' of view '{}' is {} for it, and the model's input "
                                             "takes no nulls",
                                             row, *feature.name, feature.view->name,
                                             kStatusNames[static_cast<std::size_t>(cell.status)]));
    }
  }

  json::array take_rows() { return std::move(rows_); }
  std::vector<graph::Tensor> take_columns() { return std::move(tensors_); }
  std::vector<std::int64_t> take_times() { return std::move(times_); }
  void count() const {
    for (std::size_t i = 0; i < std::size(by_status_); ++i)
      if (by_status_[i] > 0) of_.counts_->by_status[i].fetch_add(by_status_[i], std::memory_order_relaxed);
  }
  json::object explain(std::int64_t as_of_us) {
    json::array columns;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const auto& feature = features_[f];
      columns.push_back(json::object{{"view", feature.view->name},
                                     {"revision", feature.view->revision},
                                     {"feature", *feature.name},
                                     {"type", lookup::name(feature.type)},
                                     {"values", std::move(columns_[f].values)},
                                     {"statuses", std::move(columns_[f].statuses)},
                                     {"times", std::move(columns_[f].times)}});
    }
    return {{"service", of_.plan_.service},
            {"revision", of_.plan_.revision},
            {"as_of", lookup::to_json(as_of_us, Type::timestamp)},
            {"columns", std::move(columns)}};
  }

 private:
  struct Feature {
    const traffic::FeatureView* view;
    std::size_t place;  // of the view among all
    const std::string* name;
    Type type;
    const graph::Port* input;  // of the model; null when it takes none of that name
    graph::Tensor* column;     // where it goes; null: into the row
  };
  static void put(graph::Tensor& column, std::size_t row, double value) {
    if (column.element == graph::Element::float64) {
      std::memcpy(column.bytes.data() + row * sizeof value, &value, sizeof value);
      return;
    }
    const auto single = static_cast<float>(value);
    std::memcpy(column.bytes.data() + row * sizeof single, &single, sizeof single);
  }
  struct Column {
    json::array values, statuses, times;
    void add(const FeatureCell& cell, Type type) {
      values.push_back(lookup::to_json(value_in(cell, type), type));
      statuses.push_back(json::value(kStatusNames[static_cast<std::size_t>(cell.status)]));
      std::string time;
      if (cell.event_us != 0) lookup::append_time(time, cell.event_us);
      times.push_back(json::value(time));
    }
  };

  const EndpointFeatures& of_;
  const json::array& given_;
  const bool explains_;
  std::vector<Feature> features_;
  std::vector<const graph::Port*> others_;  // inputs that no feature is for
  std::vector<graph::Tensor> tensors_;      // by input
  json::array rows_;
  std::uint64_t by_status_[4] = {};
  std::vector<Column> columns_;
  std::vector<std::int64_t> times_;  // of the newest row found, by row and view
};

// ---- what rows say

struct EndpointFeatures::Asked {
  std::vector<Bytes> keys;
  std::vector<BytesView> key_views;
  std::vector<std::vector<lookup::Value>> fields;
  std::vector<const std::vector<lookup::Value>*> request;
};

namespace {

lookup::Value value_at(const json::array& rows, std::size_t row, const lookup::Column& column, bool is_key,
                       const std::string& view) {
  const auto* given = rows[row].get_object().if_contains(column.name);
  if (!given)
    throw Error(Code::invalid,
                fmt::format("rows[{}].{}: is missing, {} feature view '{}' {}", row, column.name,
                            is_key ? "by which" : "which expressions of", view, is_key ? "finds its rows" : "need"));
  auto value = lookup::from_json(*given, column.type);
  if (!value || (is_key && std::holds_alternative<std::monostate>(*value)))
    throw Error(Code::invalid,
                fmt::format("rows[{}].{}: must be {}", row, column.name, lookup::what_is_expected(column.type)));
  return std::move(*value);
}

}  // namespace

EndpointFeatures::EndpointFeatures(traffic::Features plan, const FeatureStore& store,
                                   std::shared_ptr<FeatureCounts> counts)
    : plan_(std::move(plan)), reader_(store.reader), counts_(std::move(counts)), problem_(plan_.problem) {
  for (const auto& view : plan_.views) {
    if (!problem_.empty()) return;
    try {
      add_view(view, store);
    } catch (const Error& e) {
      problem_ = fmt::format("feature view '{}': {}", view.name, e.what());
    }
  }
}

void EndpointFeatures::describe(protocol::Description& to) const {
  std::set<std::string, std::less<>> said;
  const auto add = [&](const std::vector<traffic::FeatureColumn>& columns, bool is_key) {
    for (const auto& column : columns)
      if (said.insert(column.name).second) to.row_fields.push_back({column.name, column.type, is_key});
  };
  for (const auto& view : plan_.views) {
    to.looked_up.insert(view.features.begin(), view.features.end());
    if (!view.space.empty()) add(view.key, true);
  }
  for (const auto& view : plan_.views)
    if (std::any_of(view.expressions.begin(), view.expressions.end(), [&](const auto& expression) {
          return std::find(view.features.begin(), view.features.end(), expression.name) != view.features.end();
        }))
      add(view.request, false);
}

void EndpointFeatures::add_view(const traffic::FeatureView& plan, const FeatureStore& store) {
  View view;
  view.plan = &plan;
  view.view = make_view(plan);
  view.key = columns_in(plan.key);
  std::vector<lookup::ComputedText> expressions;
  for (const auto& expression : plan.expressions) expressions.push_back({expression.name, expression.is});
  view.computed = lookup::Computed(columns_in(plan.request), *view.view, expressions);
  view.first = features_.size();
  for (const auto& feature : plan.features) {
    const auto place = lookup::find_place(*view.view, view.computed, feature);
    if (!place) throw Error(Code::invalid, fmt::format("has no feature '{}'", feature));
    if (!features_.emplace(feature, features_.size()).second)
      throw Error(Code::invalid, fmt::format("another view of the service has a feature '{}', too", feature));
    view.places.push_back(*place);
  }
  if (!plan.space.empty()) {
    if (!reader_)
      throw Error(Code::unavailable,
                  plan_.prefix.empty()
                      ? "this server reaches no online store: give it the setting 'online', the directory of the "
                        "control plane's store, which must be on the same machine"
                      : "this server reaches no online store, which is in Redis: give it the setting 'redis_host' or "
                        "'redis_socket'");
    const auto space = store.spaces.find(plan.space);
    if (space == store.spaces.end())
      throw Error(Code::unavailable, "the control plane has not told this server the keys of its rows yet");
    view.space = space->second;
    for (const auto& column : view.key) given_.insert(column.name);
  }
  if (lookup::computes(view.places))
    for (const auto& field : view.computed.request()) given_.insert(field.name);
  views_.push_back(std::move(view));
}

void EndpointFeatures::check_fields(const json::array& rows, std::span<const graph::Port> inputs) const {
  if (rows.empty()) throw Error(Code::invalid, "rows: at least one is needed");
  if (rows.size() * std::max<std::size_t>(features_.size(), 1) > kCellsMax)
    throw Error(Code::invalid, fmt::format("rows: {} of {} features each; at most {} are looked up at once",
                                           rows.size(), features_.size(), kCellsMax));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].is_object()) throw Error(Code::invalid, fmt::format("rows[{}]: must be an object", row));
    for (const auto& field : rows[row].get_object()) {
      const std::string_view name = field.key();
      if (given_.contains(name)) continue;
      if (features_.contains(name))
        throw Error(Code::invalid, fmt::format("rows[{}].{}: is looked up, by feature service '{}': leave it out", row,
                                               name, plan_.service));
      if (std::none_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.name == name; }))
        throw Error(Code::invalid,
                    fmt::format("rows[{}].{}: is neither an input of the model nor a key or a field that "
                                "feature service '{}' takes ({})",
                                row, name, plan_.service, names_in(given_)));
    }
  }
}

std::vector<EndpointFeatures::Asked> EndpointFeatures::keys_and_fields(const json::array& rows) const {
  std::vector<Asked> out;
  for (const auto& view : views_) {
    auto& asked = out.emplace_back();
    if (view.space) {
      std::vector<lookup::Value> values(view.key.size());
      for (std::size_t row = 0; row < rows.size(); ++row) {
        for (std::size_t c = 0; c < values.size(); ++c)
          values[c] = value_at(rows, row, view.key[c], true, view.plan->name);
        asked.keys.push_back(lookup::entity_key(view.view->key, values));
      }
      asked.key_views.assign(asked.keys.begin(), asked.keys.end());
    }
    if (!lookup::computes(view.places)) continue;
    for (const auto& field : view.computed.request()) {
      auto& values = asked.fields.emplace_back();
      for (std::size_t row = 0; row < rows.size(); ++row)
        values.push_back(value_at(rows, row, field, false, view.plan->name));
    }
    for (const auto& field : asked.fields) asked.request.push_back(&field);
  }
  return out;
}

std::int64_t EndpointFeatures::read(const std::vector<Asked>& asked, const protocol::Predict& ask,
                                    const sys::Clock& clock, lookup::FeatureSink& into) const {
  for (int tries_left = kReadTries;; --tries_left) {
    into.begin();
    try {
      const auto snapshot = reader_ ? reader_->snapshot() : nullptr;
      const auto now_us = ask.as_of_us.value_or(clock.wall().count());  // after the snapshot: nothing in it is later
      for (std::size_t v = 0; v < views_.size(); ++v) {
        const auto& view = views_[v];
        lookup::read_features(snapshot.get(),
                              {*view.view, view.computed, view.places, view.space.get(), asked[v].key_views,
                               ask.rows.size(), asked[v].request},
                              now_us, view.first, into);
      }
      for (const auto& view : views_)
        if (view.space && !lookup::has_mark(*snapshot, *view.space))
          throw Error(Code::unavailable,
                      fmt::format("feature view '{}' was brought online anew, or is not in the online store that this "
                                  "server reads; it goes on with the next plan",
                                  view.plan->name));
      return now_us;
    } catch (const Error& e) {
      // Written after we had looked at the clock: it is later now.
      if (e.code() != Code::conflict || ask.as_of_us || tries_left == 0) throw;
    }
  }
}

void EndpointFeatures::fill(protocol::Predict& ask, std::span<const graph::Port> inputs, const sys::Clock& clock,
                            json::object* explained) const {
  if (!problem_.empty())
    throw Error(Code::unavailable, fmt::format("features of service '{}': {}", plan_.service, problem_));
  check_fields(ask.rows, inputs);
  const auto began = clock.now();
  const auto asked = keys_and_fields(ask.rows);
  Filling filling(*this, ask.rows, inputs, explained != nullptr);
  try {
    const auto as_of_us = read(asked, ask, clock, filling);
    if (explained) *explained = filling.explain(as_of_us);
  } catch (const Error& e) {
    if (e.code() != Code::invalid) counts_->failures.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
  filling.count();
  counts_->reads.add((clock.now() - began).count());
  ask.rows = filling.take_rows();
  ask.columns = filling.take_columns();
  ask.feature_times = filling.take_times();
}

void write_feature_metrics(std::string& out,
                           const std::vector<std::pair<std::string, const EndpointFeatures*>>& endpoints) {
  if (endpoints.empty()) return;
  const auto begin = [&](std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  };
  begin("falaj_serve_features_total", "counter", "Features looked up for predictions, by what was found.");
  for (const auto& [endpoint, features] : endpoints)
    for (std::size_t i = 0; i < std::size(kStatusNames); ++i)
      fmt::format_to(std::back_inserter(out), "falaj_serve_features_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                     endpoint, kStatusNames[i], features->counts()->by_status[i].load());
  begin("falaj_serve_feature_failures_total", "counter", "Predictions whose features could not be read.");
  for (const auto& [endpoint, features] : endpoints)
    fmt::format_to(std::back_inserter(out), "falaj_serve_feature_failures_total{{endpoint=\"{}\"}} {}\n", endpoint,
                   features->counts()->failures.load());
  begin("falaj_serve_feature_seconds", "summary", "Time that looking up the features of a request took.");
  for (const auto& [endpoint, features] : endpoints) {
    const auto& reads = features->counts()->reads;
    fmt::format_to(std::back_inserter(out),
                   "falaj_serve_feature_seconds_sum{{endpoint=\"{0}\"}} {1}\n"
                   "falaj_serve_feature_seconds_count{{endpoint=\"{0}\"}} {2}\n",
                   endpoint, static_cast<double>(reads.us.load()) / 1e6, reads.count.load());
  }
}

}  // namespace falaj::serve
