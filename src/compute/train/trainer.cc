// SPDX-License-Identifier: Apache-2.0
#include "compute/train/trainer.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compute/graph/check.h"
#include "compute/infer/session.h"
#include "compute/train/export.h"
#include "compute/train/journal.h"
#include "compute/train/model.h"
#include "compute/train/parity.h"
#include "compute/train/profile.h"
#include "compute/train/reference.h"
#include "compute/train/report.h"
#include "compute/train/system_metrics.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "foundation/sys/files.h"

namespace falaj::train {
namespace {

constexpr std::size_t kParityRows = 10'000, kSlicesMax = 50, kSliceRowsMin = 100;
// Beside the checkpoints: how much of the budget is used up, in microseconds; written now and then.
constexpr char kSpent[] = "budget-spent";
constexpr sys::Micros kSpentEvery = std::chrono::seconds(5);

// One way to learn the problem.
struct Candidate {
  const char* kind;  // "xgboost", "network": also the name of its checkpoints
  graph::For what;
};

std::vector<Candidate> candidates_of(const recipe::Training& training, const Problem& problem,
                                     std::int64_t memory_bytes, bool gang) {
  const Candidate trees{"xgboost", graph::For::trees}, network{"network", graph::For::network};
  if (training.model == "xgboost") return {trees};
  if (training.model == "network") return {network};
  const bool trees_can = !problem.image && !gang && training.resources.gpus == 0 &&
                         trees_fit(problem, features_of(training, problem, graph::For::trees).size(), memory_bytes);
  if (!training.trees.monotone.empty()) {  // a network promises nothing of the kind
    if (trees_can) return {trees};
    throw Error(Code::invalid, "trees.monotone: is kept by trees only, which cannot learn this; see model");
  }
  if (!trees_can) return {network};
  return {trees, network};  // trees first: on tables they are hard to beat, and quick
}

// As the name of a metric may hold it.
std::string metric_word(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (auto& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return out.empty() ? "_" : out;
}

// One number of each row.
std::vector<float> all_of(const Packed& rows, std::vector<float> RowBlock::*which) {
  std::vector<float> out;
  RowBlock block;
  const auto at_once = rows.rows_at_once(65'536);
  for (std::size_t first = 0; first < rows.rows(); first += at_once) {
    rows.read(first, std::min(at_once, rows.rows() - first), block);
    out.insert(out.end(), (block.*which).begin(), (block.*which).end());
  }
  return out;
}

std::vector<float> labels_of(const Packed& rows) { return all_of(rows, &RowBlock::labels); }

class Trainer {
 public:
  Trainer(const recipe::Training& training, const Places& places, const Options& options, Gang* gang,
          const sys::Clock& clock)
      : training_(training),
        places_(places),
        options_(options),
        clock_(clock),
        journal_(places.metrics, clock),
        profile_(clock, training.profile),
        system_(clock, options.threads, options.memory_bytes),
        scratch_(sys::open_files(places.scratch)),
        checkpoint_files_(sys::open_files(places.checkpoints)),
        outputs_(sys::open_files(places.outputs)),
        // The engine gets a third of what there is; models and their rows the rest.
        room_({static_cast<std::uint64_t>(options.memory_bytes / 3), std::uint64_t{1} << 40,
               static_cast<unsigned>(options.threads)},
              *scratch_),
        gang_(gang) {}

  void run() {
    began_ = clock_.now();
    check_device(training_);
    profile_.enter("look at rows");
    loader::open_rows(room_, places_.rows);
    Rows rows(room_, training_, options_.look);
    describe(rows.problem());
    const auto candidates = candidates_of(training_, rows.problem(), options_.memory_bytes, gang_ != nullptr);
    if (candidates.size() == 1) {
      tell_recipe(candidates[0]);
      auto only = learn(rows, candidates[0]);
      if (first_rank()) finish(rows, only);
      return;
    }
    auto best = best_of(rows, candidates);
    tell_recipe(best.candidate);
    finish(rows, best);
  }

 private:
  struct Trained {
    Candidate candidate{};
    graph::Transform transform;
    std::unique_ptr<Packed> valid, test;
    std::unique_ptr<Model> model;
    Named decides;        // on the rows to stop by
    std::string where{};  // its time went
  };

  // Each may use its share of the budget, and what those before it left. What earlier attempts took of it is known.
  Trained best_of(Rows& rows, const std::vector<Candidate>& candidates) {
    if (checkpoint_files_->stat(kSpent))
      before_ = sys::Micros(parse_int(as_text(checkpoint_files_->read_all(kSpent, 64))).value_or(0));
    std::optional<Trained> best;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const sys::Micros until(training_.budget_us / static_cast<std::int64_t>(candidates.size()) *
                              static_cast<std::int64_t>(i + 1));
      if (best && spent() >= sys::Micros(training_.budget_us)) {
        notes_.push_back(fmt::format("{} was not tried: the budget was used up.", candidates[i].kind));
        continue;
      }
      auto trained = learn(rows, candidates[i], until);
      keep_spent();
      if (best) note_choice(*best, trained);
      if (!best || better(trained, *best)) best = std::move(trained);
    }
    return std::move(*best);
  }

  sys::Micros spent() const { return before_ + (clock_.now() - began_); }
  void keep_spent() {
    checkpoint_files_->write_all(kSpent, as_bytes(std::to_string(spent().count())));
    spent_kept_ = clock_.now();
  }

  // What the model that is learned was told, so that runs can be told apart by it.
  void tell_recipe(const Candidate& candidate) {
    json::object params{{"patience", training_.patience}};
    const auto add = [&](const std::string& prefix, const json::value& of) {
      for (const auto& [key, value] : of.as_object())
        params[prefix + "." + std::string(key)] =
            value.is_double() ? json::value(fmt::format("{}", value.get_double())) : value;
    };
    if (candidate.what == graph::For::trees) add("trees", encode(training_.trees));
    if (candidate.what == graph::For::network) add("network", encode(training_.network));
    if (gang_) add("parallel", encode(training_.parallel));
    journal_.parameters(params);
  }

  void describe(const Problem& problem) {
    journal_.say(fmt::format("{} of {} from {}; split {}", name_of(problem.objective), training_.label,
                             problem.image ? "images" : fmt::format("{} columns", problem.columns.size()),
                             problem.split));
    journal_.say(fmt::format("{} rows to learn from, {} to stop by, {} to test on", problem.rows[0], problem.rows[1],
                             problem.rows[2]));
    journal_.parameters({{"objective", name_of(problem.objective)},
                         {"label", training_.label},
                         {"model", training_.model},
                         {"seed", std::to_string(training_.seed)},
                         {"rows_train", std::to_string(problem.rows[0])},
                         {"rows_valid", std::to_string(problem.rows[1])},
                         {"rows_test", std::to_string(problem.rows[2])},
                         {"split", problem.split}});
  }

  Named decide(const std::vector<Named>& all) const {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == training_.metric; });
    return found == all.end() ? all.at(0) : *found;
  }

  static bool better(const Trained& a, const Trained& b) {
    return higher_is_better(a.decides.name) ? a.decides.score.value > b.decides.score.value
                                            : a.decides.score.value < b.decides.score.value;
  }

  void note_choice(const Trained& a, const Trained& b) {
    const bool second = better(b, a);
    notes_.push_back(fmt::format("{} was chosen: {} {:.4f} on the rows to stop by, against {:.4f} of {}.",
                                 second ? b.candidate.kind : a.candidate.kind, a.decides.name,
                                 (second ? b : a).decides.score.value, (second ? a : b).decides.score.value,
                                 second ? a.candidate.kind : b.candidate.kind));
    journal_.say(notes_.back());
  }

  bool first_rank() const { return !gang_ || gang_->rank() == 0; }

  // What was learned of the columns is kept with the weights that were learned from it, and is the same for all ranks.
  graph::Transform transform_of(Rows& rows, const Candidate& candidate, Checkpoints& checkpoints) {
    Bytes encoded;
    if (first_rank()) {
      if (const auto saved = checkpoints.newest()) {
        encoded = saved->parts.at("transform");
        journal_.say(fmt::format("{}: going on from checkpoint {}", candidate.kind, saved->number));
      } else {
        profile_.enter("fit columns");
        journal_.begin("columns");
        encoded = rows.fit(features_of(training_, rows.problem(), candidate.what),
                           [&](double done) { journal_.progress("columns", done, ""); })
                      .encode();
      }
    }
    if (gang_) encoded = gang_->share(std::move(encoded));
    return graph::Transform::decode(encoded);
  }

  // `until`: of the budget; none for the only one.
  Trained learn(Rows& rows, const Candidate& candidate, std::optional<sys::Micros> until = {}) {
    profile_.begin();
    Checkpoints checkpoints(*checkpoint_files_, fmt::format("{}-", candidate.kind),
                            static_cast<std::size_t>(training_.checkpoints.keep));
    const auto transform = transform_of(rows, candidate, checkpoints);
    profile_.enter("pack rows");
    journal_.begin("rows");
    auto parts = rows.pack(transform, *scratch_, [&](double done) { journal_.progress("rows", done, ""); });
    Surroundings around{clock_,    checkpoints,           {},           options_.must_stop, options_.threads, gang_,
                        &profile_, options_.memory_bytes, options_.look};
    if (until) around.time_is_up = [this, until] { return spent() >= *until; };
    profile_.enter("prepare");
    if (gang_) gang_->meet();  // some read faster than others
    journal_.begin(candidate.kind);
    around.tell = [&](const Told& told) {
      std::string text;
      for (const auto& [name, value] : told.metrics) text += fmt::format("{} {:.4f}  ", name, value);
      for (const auto& [name, value] : told.aside)
        if (name == "rows_per_second") text += fmt::format("{:.0f} rows/s  ", value);
      auto all = told.metrics;
      all.insert(all.end(), told.aside.begin(), told.aside.end());
      for (auto& one : system_.sample()) all.push_back(std::move(one));
      journal_.step(told.step, all);
      if (until && clock_.now() - spent_kept_ >= kSpentEvery) keep_spent();
      journal_.progress(candidate.kind, static_cast<double>(told.step) / static_cast<double>(told.steps), text);
    };
    auto model = candidate.what == graph::For::trees
                     ? train_trees(training_, rows.problem(), transform, parts, around)
                     : train_network(training_, rows.problem(), transform, parts, around);
    profile_.enter("evaluate");
    if (!first_rank()) return {candidate, transform, nullptr, nullptr, std::move(model), {}};
    const auto all =
        scores(rows.problem().objective, model->predict(*parts.valid, options_.look), labels_of(*parts.valid),
               rows.problem().outputs(), groups_if_ranked(rows.problem(), *parts.valid));
    return {candidate,        transform,   std::move(parts.valid), std::move(parts.test),
            std::move(model), decide(all), profile_.sentence()};
  }

  static std::vector<float> groups_if_ranked(const Problem& problem, const Packed& rows) {
    return problem.objective == Objective::ranking ? all_of(rows, &RowBlock::groups) : std::vector<float>{};
  }

  void finish(Rows& rows, Trained& best) {
    const auto& problem = rows.problem();
    Result result;
    result.name = places_.run_id.empty() ? training_.label : fmt::format("{} ({})", training_.label, places_.run_id);
    result.model = best.candidate.kind;
    result.predictions = best.model->predict(*best.test, options_.look);
    result.labels = labels_of(*best.test);
    result.groups = groups_if_ranked(problem, *best.test);
    result.scores = scores(problem.objective, result.predictions, result.labels, problem.outputs(), result.groups);
    if (problem.objective == Objective::binary)
      result.scores.push_back({"calibration_error", calibration_error(result.predictions, result.labels)});
    Metrics told;
    for (const auto& one : result.scores) {
      journal_.say(
          fmt::format("test {} {:.4f} ({:.4f} to {:.4f})", one.name, one.score.value, one.score.low, one.score.high));
      tell(told, "test_" + one.name, one.score);
    }
    result.importance = best.model->importance();
    if (!best.where.empty()) {
      journal_.say(best.where);
      notes_.push_back(best.where);
    }
    result.notes = notes_;
    slice(rows, result, told);
    compare(rows, result, told);

    profile_.enter("export");
    const auto onnx = export_model(problem, best.transform, *best.model);
    const auto summary = graph::check(onnx);
    const auto session = infer::Session::open(infer::Runtime::load(places_.runtime), onnx);
    result.parity = parity_of(session, rows, best, result.predictions);
    journal_.say(fmt::format("exported: {} nodes, {} bytes; {}", summary.nodes, onnx.size(), result.parity.sentence()));
    told.emplace_back("export_bytes", static_cast<double>(onnx.size()));
    told.emplace_back("parity_rows", static_cast<double>(result.parity.rows));
    told.emplace_back("parity_largest", result.parity.largest);
    told.emplace_back("seconds", std::chrono::duration<double>(spent()).count());
    journal_.metrics(0, told);
    journal_.parameters({{"chosen", best.candidate.kind}});

    // The model last: when it is there, everything is.
    if (training_.profile) outputs_->write_all("profile.json", as_bytes(profile_.chrome()));
    outputs_->write_all("report.html", as_bytes(report_html(problem, result)));
    outputs_->write_all("model/reference.json",
                        as_bytes(reference_text(rows, result.predictions, result.labels, training_.reference_rows)));
    outputs_->write_all("model/MLmodel", as_bytes(mlmodel_text(problem, best.transform, places_.run_id)));
    outputs_->write_all("model/model.onnx", onnx);
  }

  Parity parity_of(const infer::Session& session, Rows& rows, Trained& best, std::span<const float> test) {
    ParityCheck check(session, rows, training_.registered.tolerance, kParityRows);
    check.add(Part::test, test);
    if (check.wants_more()) check.add(Part::valid, best.model->predict(*best.valid, options_.look));
    if (check.wants_more()) check.add_made(best.transform, *best.model, *scratch_);
    return check.result();
  }

  using Metrics = std::vector<std::pair<std::string, double>>;
  static void tell(Metrics& told, const std::string& name, const Score& score) {
    if (!std::isfinite(score.value)) return;
    told.emplace_back(name, score.value);
    told.emplace_back(name + "_low", score.low);
    told.emplace_back(name + "_high", score.high);
  }

  // Beside the model that answers now, on the same rows.
  void compare(Rows& rows, Result& result, Metrics& told) {
    if (places_.against.empty()) return;
    const auto& problem = rows.problem();
    profile_.enter("compare");
    try {
      const auto onnx = sys::read_files(places_.against)->read_all("model.onnx", graph::Limits{}.bytes);
      graph::check(onnx);
      const auto theirs = predictions_of(infer::Session::open(infer::Runtime::load(places_.runtime), onnx), rows);
      for (const auto& one : scores(problem.objective, theirs, result.labels, problem.outputs(), result.groups))
        tell(told, "test_against_" + one.name, one.score);
      for (const auto& one :
           gains(problem.objective, result.predictions, theirs, result.labels, problem.outputs(), result.groups)) {
        auto text = fmt::format("better than {} on the same rows by {} {:.4f} ({:.4f} to {:.4f})", training_.compare,
                                one.name, one.score.value, one.score.low, one.score.high);
        journal_.say(text);
        result.notes.push_back(std::move(text));
        tell(told, "test_gain_" + one.name, one.score);
      }
    } catch (const Error& e) {  // a gate that asks for the gain then says no
      journal_.say(fmt::format("cannot be compared with {}: {}", training_.compare, e.what()));
    }
  }

  // What decides, and what fairness is about: how often a slice is said to be positive, and how many of its positives
  // are found.
  void tell_slice(Metrics& told, const std::string& slice, const Named& decided, std::span<const float> predictions,
                  std::span<const float> labels, bool binary) const {
    tell(told, fmt::format("test_{}/{}", decided.name, slice), decided.score);
    if (!binary) return;
    std::vector<float> found;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] > 0.5F) found.push_back(predictions[i]);
    const auto yes = [](std::span<const float> of) { return accuracy(of, std::vector<float>(of.size(), 1), 1); };
    tell(told, "test_said/" + slice, yes(predictions));
    tell(told, "test_recall/" + slice, yes(found));
  }

  // The metric for each frequent value of the columns that were asked about.
  void slice(Rows& rows, Result& result, Metrics& told) {
    const auto& problem = rows.problem();
    const auto outputs = problem.outputs();
    for (const auto& column : training_.slices) {
      const auto values = rows.values(Part::test, column);
      std::map<std::string, std::vector<std::size_t>> of;
      for (std::size_t i = 0; i < values.size(); ++i) of[values[i]].push_back(i);
      std::vector<std::pair<std::string, std::vector<std::size_t>>> frequent;
      for (auto& [value, at] : of)
        if (at.size() >= kSliceRowsMin) frequent.emplace_back(value, std::move(at));
      std::stable_sort(frequent.begin(), frequent.end(),
                       [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
      if (frequent.size() > kSlicesMax) frequent.resize(kSlicesMax);
      for (const auto& [value, at] : frequent) {
        std::vector<float> predictions, labels, groups;  // of a ranking: what is left of each group
        for (const auto i : at) {
          predictions.insert(predictions.end(), result.predictions.begin() + static_cast<std::ptrdiff_t>(i * outputs),
                             result.predictions.begin() + static_cast<std::ptrdiff_t>((i + 1) * outputs));
          labels.push_back(result.labels[i]);
          if (!result.groups.empty()) groups.push_back(result.groups[i]);
        }
        const auto decided = decide(scores(problem.objective, predictions, labels, outputs, groups));
        tell_slice(told, fmt::format("{}/{}", metric_word(column), metric_word(value)), decided, predictions, labels,
                   problem.objective == Objective::binary);
        result.slices.push_back({column, value, at.size(), decided.score});
      }
    }
  }

  const recipe::Training& training_;
  const Places& places_;
  const Options& options_;
  const sys::Clock& clock_;
  Journal journal_;
  Profile profile_;
  SystemMetrics system_;
  const std::unique_ptr<sys::Files> scratch_, checkpoint_files_, outputs_;
  table::Workspace room_;
  Gang* const gang_;  // null: alone
  std::vector<std::string> notes_;
  sys::Micros began_{0}, before_{0}, spent_kept_{0};  // before_: what earlier attempts took
};

}  // namespace

void train(const recipe::Training& training, const Places& places, const Options& options, const sys::Clock& clock) {
  if (!options.gang) return Trainer(training, places, options, nullptr, clock).run();
  try {
    auto place = *options.gang;
    place.must_stop = options.must_stop;
    Gang gang(std::move(place), clock);
    if (options.gang->spares > 0) {
      const auto role = gang.is_spare() ? "stands by" : fmt::format("is rank {} of {}", gang.rank(), gang.ranks());
      fmt::print("task {} {}\n", options.gang->task, role);
      std::fflush(stdout);
    }
    if (!gang.is_spare()) {
      auto mine = places;
      if (gang.rank() != 0) mine.metrics.clear();
      Trainer(training, mine, options, &gang, clock).run();
      if (gang.rank() == 0) return gang.over();
    }
    gang.stand_by();
  } catch (const Error& e) {
    if (e.code() == Code::cancelled) throw Stopped{};  // nothing to save
    throw;
  }
}

}  // namespace falaj::train
