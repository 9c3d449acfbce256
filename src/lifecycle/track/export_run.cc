// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/export_run.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj {

// Lengths are of bytes here; what is logged is checked by characters, afterwards.
template <>
struct Shape<track::ExportedSeries> {
  using T = track::ExportedSeries;
  static constexpr std::string_view name = "ExportedSeries";
  static Fields fields() {
    return {field("key", &T::key, "Of which metric.").required(), field("model_id", &T::model_id, "Or ''."),
            field("dataset_name", &T::dataset_name, "Or ''."), field("dataset_digest", &T::dataset_digest, "Or ''.")};
  }
};
template <>
struct Shape<track::ExportedDataset> {
  using T = track::ExportedDataset;
  static constexpr std::string_view name = "ExportedDataset";
  static constexpr std::int64_t kBytesMax = track::kExportedRunBytesMax;
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required(),
            field("digest", &T::digest, "Of its content.").required(),
            field("source_type", &T::source_type, "What kind of source."),
            field("source", &T::source, "Where it is from.").length(0, kBytesMax),
            field("schema", &T::schema, "Its columns.").length(0, kBytesMax),
            field("profile", &T::profile, "Its statistics.").length(0, kBytesMax),
            field("tags", &T::tags, "Tags.")};
  }
};
template <>
struct Shape<track::ExportedModel> {
  using T = track::ExportedModel;
  static constexpr std::string_view name = "ExportedModel";
  static Fields fields() {
    return {field("model_id", &T::model_id, "Which.").required(), field("step", &T::step, "When.")};
  }
};
template <>
struct Shape<track::ExportedLoggedModel> {
  using T = track::ExportedLoggedModel;
  static constexpr std::string_view name = "ExportedLoggedModel";
  static constexpr std::string_view kStatuses[] = {"LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY",
                                                   "LOGGED_MODEL_UPLOAD_FAILED"};
  static constexpr std::string_view kStages[] = {"active", "deleted"};
  static Fields fields() {
    return {field("model_id", &T::model_id, "Its id.").required(),
            field("name", &T::name, "Its name.").required(),
            field("type", &T::type, "Its type."),
            field("source_run_id", &T::source_run_id, "The run, or ''."),
            field("status", &T::status, "How it is.").required().one_of(kStatuses),
            field("stage", &T::stage, "active or deleted.").required().one_of(kStages),
            field("created_ms", &T::created_ms, "When it was made.").required(),
            field("updated_ms", &T::updated_ms, "When it changed.").required(),
            field("params", &T::params, "Params."),
            field("tags", &T::tags, "Tags.")};
  }
};
template <>
struct Shape<track::ExportedRun> {
  using T = track::ExportedRun;
  static constexpr std::string_view name = "ExportedRun";
  static constexpr std::int64_t kMany = 1'000'000;
  static constexpr std::string_view kStatuses[] = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"};
  static constexpr std::string_view kStages[] = {"active", "deleted"};
  static Fields fields() {
    return {field("run_id", &T::run_id, "Its id.").required().length(32, 32),
            field("experiment", &T::experiment, "The name of its experiment.").required(),
            field("name", &T::name, "Its name.").required(),
            field("user", &T::user, "Whose it is."),
            field("status", &T::status, "How it is.").required().one_of(kStatuses),
            field("stage", &T::stage, "active or deleted.").required().one_of(kStages),
            field("start_ms", &T::start_ms, "Milliseconds since 1970.").required(),
            field("end_ms", &T::end_ms, "Milliseconds since 1970."),
            field("params", &T::params, "What it was given.").length(0, kMany),
            field("tags", &T::tags, "Tags.").length(0, kMany),
            field("datasets", &T::datasets, "What it read."),
            field("model_inputs", &T::model_inputs, "Logged models it began from."),
            field("model_outputs", &T::model_outputs, "Logged models it made."),
            field("series", &T::series, "What its points belong to.").length(0, kMany),
            field("logged_models", &T::logged_models, "Those it made.")};
  }
};

}  // namespace falaj

namespace falaj::track {

namespace {

constexpr std::size_t kTextPieceBytes = 64 * 1024, kLineBytesMax = 128;
constexpr std::uint64_t kPlainNan = 0x7ff8000000000000;

void check(const ExportedRun& run) {
  if (run.name.empty()) throw Error(Code::invalid, "name: a run needs one");
  check_length("name", run.name, kTagBytesMax);
  check_length("user", run.user, 256);
  for (const auto& [key, value] : run.params) {
    check_key("params", key);
    check_length(fmt::format("value of param '{}'", key), value, kParamBytesMax);
  }
  for (const auto& [key, value] : run.tags) {
    check_key("tags", key);
    check_length(fmt::format("value of tag '{}'", key), value, kTagBytesMax);
  }
  for (const auto& dataset : run.datasets) {
    check_dataset({dataset.name, dataset.digest, dataset.source_type, dataset.source, dataset.schema, dataset.profile});
    for (const auto& [key, value] : dataset.tags) check_length("dataset tag", value, kTagBytesMax);
  }
  std::string_view model_before;
  for (const auto& model : run.logged_models) {
    if (!is_model_id(model.model_id))
      throw Error(Code::invalid, fmt::format("logged_models: not the id of one: '{}'", shortened(model.model_id, 80)));
    if (model.model_id <= model_before) throw Error(Code::invalid, "logged_models: not in order");
    model_before = model.model_id;
    if (!model.source_run_id.empty() && model.source_run_id != run.run_id)
      throw Error(Code::invalid, fmt::format("logged_models: {} is of another run", model.model_id));
    check_model_name(model.name);
    check_length("model type", model.type, kModelNameMax);
    for (const auto& [key, value] : model.params) {
      check_key("params", key);
      check_length(fmt::format("value of param '{}'", key), value, kParamBytesMax);
    }
    for (const auto& [key, value] : model.tags) {
      check_key("tags", key);
      check_length(fmt::format("value of tag '{}'", key), value, kTagBytesMax);
    }
  }
  const ExportedSeries* before = nullptr;
  for (const auto& series : run.series) {
    check_key("series", series.key);
    const auto parts = [](const ExportedSeries& s) {
      return std::tie(s.key, s.model_id, s.dataset_name, s.dataset_digest);
    };
    if (before && !(parts(*before) < parts(series))) throw Error(Code::invalid, "series: not in order");
    before = &series;
  }
}

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

bool parse_value(std::string_view text, double& out) {
  if (text.starts_with("nan")) {
    std::uint64_t bits = kPlainNan;
    if (text.size() > 3) {
      const auto end = text.data() + text.size();
      const auto result = std::from_chars(text.data() + std::min<std::size_t>(4, text.size()), end, bits, 16);
      if (text[3] != ':' || text.size() != 20 || result.ec != std::errc() || result.ptr != end) return false;
    }
    out = std::bit_cast<double>(bits);
    return std::isnan(out);
  }
  if (text == "inf" || text == "-inf") {
    out = std::numeric_limits<double>::infinity() * (text[0] == '-' ? -1 : 1);
    return true;
  }
  return parse_whole(text, out) && std::isfinite(out);
}

}  // namespace

std::string to_text(const ExportedRun& run) { return canonical(encode(run)) + "\n"; }

ExportedRun parse_exported_run(std::string_view text) {
  auto run = decode<ExportedRun>(parse_json(trim(text)), "run.json");
  check(run);
  return run;
}

void append_csv(std::string& out, std::size_t series, const Point& point) {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "{},{},{},", series, point.unix_ms, point.step);
  const auto bits = std::bit_cast<std::uint64_t>(point.value);
  if (std::isnan(point.value)) {
    out += "nan";
    if (bits != kPlainNan) fmt::format_to(to, ":{:016x}", bits);
  } else if (std::isinf(point.value)) {
    out += point.value < 0 ? "-inf" : "inf";
  } else {
    char digits[32];  // the fewest that give the same bits again
    out.append(digits, std::to_chars(digits, digits + sizeof digits, point.value).ptr);
  }
  out += '\n';
}

std::optional<std::string_view> PointsReader::line() {
  for (;;) {
    const auto end = text_.find('\n', at_);
    if (end != std::string::npos) {
      const auto out = std::string_view(text_).substr(at_, end - at_);
      at_ = end + 1;
      ++lines_;
      return out;
    }
    if (text_.size() - at_ > kLineBytesMax) throw Error(Code::invalid, "points.csv: a line is too long");
    text_.erase(0, at_);
    at_ = 0;
    const auto had = text_.size();
    text_.resize(had + kTextPieceBytes);
    const auto n = source_(std::as_writable_bytes(std::span(text_)).subspan(had));
    text_.resize(had + n);
    if (n > 0) continue;
    if (had > 0) throw Error(Code::invalid, "points.csv: its last line has no end");
    return std::nullopt;
  }
}

std::optional<PointsReader::Line> PointsReader::next() {
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::invalid, fmt::format("points.csv:{}: {}", lines_, why));
  };
  if (lines_ == 0) {
    const auto first = line();
    if (!first || *first != kPointsHeader.substr(0, kPointsHeader.size() - 1)) refuse("not the titles of points");
  }
  const auto text = line();
  if (!text) return std::nullopt;
  std::string_view parts[4];
  std::size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const auto comma = i < 3 ? text->find(',', at) : text->size();
    if (comma == std::string_view::npos) refuse("fewer than four values");
    parts[i] = text->substr(at, comma - at);
    at = comma + 1;
  }
  Line out;
  if (!parse_whole(parts[0], out.series) || !parse_whole(parts[1], out.point.unix_ms) ||
      !parse_whole(parts[2], out.point.step) || !parse_value(parts[3], out.point.value))
    refuse("not a point");
  if (out.series >= series_) refuse("of a series that the run does not have");
  if (out.point.unix_ms < 0) refuse("a time before 1970");
  if (last_ && (out.series < last_->series || (out.series == last_->series && !before(last_->point, out.point))))
    refuse("not in order");
  last_ = out;
  return out;
}

}  // namespace falaj::track
