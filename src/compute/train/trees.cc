// SPDX-License-Identifier: Apache-2.0
#include <xgboost/c_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compute/graph/trees.h"
#include "compute/loader/mix.h"
#include "compute/train/model.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::train {
namespace {

constexpr std::size_t kRowsAtOnce = 16'384, kBytesAtOnce = 4 << 20;

void must_boost(int result, const char* doing) {
  if (result != 0) throw Error(Code::invalid, fmt::format("XGBoost: {}: {}", doing, XGBGetLastError()));
}

template <int (*Free)(void*)>
struct Handle {
  void* at = nullptr;
  Handle() = default;
  ~Handle() {
    if (at) Free(at);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};
using Matrix = Handle<XGDMatrixFree>;
using Booster = Handle<XGBoosterFree>;

// An array of numpy's interface, whose rows lie `stride` bytes apart. columns = 0: one number a row.
std::string array_of(const void* data, std::size_t rows, std::size_t columns, std::size_t stride, const char* type) {
  const auto shape = columns == 0 ? fmt::format("[{}]", rows) : fmt::format("[{}, {}]", rows, columns);
  const auto strides = columns == 0 ? fmt::format("[{}]", stride) : fmt::format("[{}, 4]", stride);
  return fmt::format(R"({{"data": [{}, true], "shape": {}, "strides": {}, "typestr": "{}", "version": 3}})",
                     reinterpret_cast<std::uintptr_t>(data), shape, strides, type);
}

// Rows handed to XGBoost a block at a time, as they lie. It keeps what it makes of them in memory: two bytes a value.
class Feed {
 public:
  Feed(const Packed& rows, const std::vector<std::size_t>& categories, Look look)
      : rows_(rows), look_(std::move(look)) {
    must_boost(XGProxyDMatrixCreate(&proxy_.at), "begin rows");
    for (const auto n : categories) types_.push_back(n > 0 ? "c" : "float");
  }

  enum class Weights { none, rows, groups };
  void make(Matrix& out, const Matrix* reference, int threads, Weights weights) {
    weights_ = weights;
    if (reference && rows_.rows() * types_.size() * kPlainBytes <= kPlainBytesMax) return make_plain(out, threads);
    const auto config = fmt::format(R"({{"missing": NaN, "nthread": {}, "max_bin": 256}})", threads);
    const auto result = XGQuantileDMatrixCreateFromCallback(this, proxy_.at, reference ? reference->at : nullptr,
                                                            &reset, &next, config.c_str(), &out.at);
    if (failure_) std::rethrow_exception(failure_);  // to XGBoost that looked like the end of the rows
    must_boost(result, "take rows");
  }

 private:
  // Rows that trees are only tried on are asked for every value in every round, which takes longer of what XGBoost
  // makes of them than of the values: few enough are kept as they are.
  static constexpr std::size_t kPlainBytes = 8, kPlainBytesMax = 32 << 20;  // of a value, of all
  void make_plain(Matrix& out, int threads) {
    const auto& layout = rows_.layout();
    packed_.resize(rows_.rows() * layout.bytes());
    rows_.read_packed(0, rows_.rows(), packed_.data());
    const auto config = fmt::format(R"({{"missing": NaN, "nthread": {}}})", threads);
    must_boost(
        XGDMatrixCreateFromDense(array_of(packed_.data(), rows_.rows(), layout.numbers, layout.bytes(), "<f4").c_str(),
                                 config.c_str(), &out.at),
        "take rows");
    describe(out.at, rows_.rows());
    packed_ = {};
  }

  static void reset(DataIterHandle self) { static_cast<Feed*>(self)->at_ = 0; }
  static int next(DataIterHandle self) {
    auto& feed = *static_cast<Feed*>(self);
    try {
      return feed.next() ? 1 : 0;
    } catch (...) {  // nothing of ours may pass through C
      feed.failure_ = std::current_exception();
      return 0;
    }
  }
  bool next() {
    if (at_ == rows_.rows()) return false;
    if (look_) look_();
    const auto& layout = rows_.layout();
    const auto stride = layout.bytes();
    const auto n = std::min(std::clamp<std::size_t>(kBytesAtOnce / stride, 1, kRowsAtOnce), rows_.rows() - at_);
    packed_.resize(n * stride);
    rows_.read_packed(at_, n, packed_.data());
    at_ += n;
    must_boost(
        XGProxyDMatrixSetDataDense(proxy_.at, array_of(packed_.data(), n, layout.numbers, stride, "<f4").c_str()),
        "take rows");
    describe(proxy_.at, n);
    return true;
  }
  // What else is known of the rows that lie in packed_.
  void describe(DMatrixHandle matrix, std::size_t n) {
    const auto stride = rows_.layout().bytes();
    const auto* label = packed_.data() + rows_.layout().label_at();
    must_boost(XGDMatrixSetInfoFromInterface(matrix, "label", array_of(label, n, 0, stride, "<f4").c_str()),
               "take labels");
    if (weights_ == Weights::groups) {
      queries_.resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        float group = 0;
        std::memcpy(&group, label + 8 + i * stride, sizeof group);
        queries_[i] = std::bit_cast<std::uint32_t>(group);  // see group_word
      }
      must_boost(XGDMatrixSetInfoFromInterface(matrix, "qid", array_of(queries_.data(), n, 0, 4, "<u4").c_str()),
                 "take groups");
    } else if (weights_ == Weights::rows) {
      must_boost(XGDMatrixSetInfoFromInterface(matrix, "weight", array_of(label + 4, n, 0, stride, "<f4").c_str()),
                 "take weights");
    }
    must_boost(XGDMatrixSetStrFeatureInfo(matrix, "feature_type", types_.data(), types_.size()),
               "name kinds of columns");
  }

  const Packed& rows_;
  const Look look_;
  Matrix proxy_;
  std::vector<const char*> types_;
  Bytes packed_;
  std::vector<std::uint32_t> queries_;
  std::size_t at_ = 0;
  Weights weights_ = Weights::none;
  std::exception_ptr failure_;
};

const char* objective_of(Objective objective) {
  switch (objective) {
    case Objective::binary:
      return "binary:logistic";
    case Objective::multiclass:
      return "multi:softprob";
    case Objective::regression:
      return "reg:squarederror";
    case Objective::ranking:
      return "rank:pairwise";
  }
  return "";
}

// XGBoost's name of one of our metrics.
std::string metric_of(const recipe::Training& training, const Problem& problem) {
  const bool many = problem.objective == Objective::multiclass;
  static const std::map<std::string, std::string> kNames = {
      {"auc", "auc"}, {"rmse", "rmse"}, {"mae", "mae"}, {"ndcg", "ndcg@10"}};
  if (training.metric == "logloss") return many ? "mlogloss" : "logloss";
  if (training.metric == "accuracy") return many ? "merror" : "error";
  if (const auto found = kNames.find(training.metric); found != kNames.end()) return found->second;
  switch (problem.objective) {
    case Objective::binary:
      return "auc";
    case Objective::multiclass:
      return "mlogloss";
    case Objective::regression:
      return "rmse";
    case Objective::ranking:
      return "ndcg@10";
  }
  return "";
}

std::map<std::string, std::string> parameters(const recipe::Training& training, const Problem& problem,
                                              const graph::Transform& transform, int threads) {
  const auto& trees = training.trees;
  std::map<std::string, std::string> out = {{"booster", "gbtree"},
                                            {"tree_method", "hist"},
                                            {"objective", objective_of(problem.objective)},
                                            {"eval_metric", metric_of(training, problem)},
                                            {"max_depth", std::to_string(trees.depth)},
                                            {"learning_rate", fmt::format("{}", trees.learning_rate)},
                                            {"colsample_bytree", fmt::format("{}", trees.columns)},
                                            {"lambda", fmt::format("{}", trees.lambda)},
                                            {"min_child_weight", fmt::format("{}", trees.child_weight)},
                                            {"nthread", std::to_string(threads)},
                                            {"seed", std::to_string(training.seed)},
                                            {"max_bin", "256"},
                                            {"verbosity", "0"},
                                            {"validate_parameters", "0"}};
  if (problem.objective == Objective::multiclass) out["num_class"] = std::to_string(problem.classes.size());
  if (!trees.monotone.empty()) {
    std::vector<int> ways;
    for (const auto& name : transform.float_names()) {
      const auto found = trees.monotone.find(name);
      ways.push_back(found == trees.monotone.end() ? 0 : static_cast<int>(found->second));
    }
    out["monotone_constraints"] = fmt::format("({})", fmt::join(ways, ","));
  }
  return out;
}

class TreeModel final : public Model {
 public:
  TreeModel(Bytes ubj, std::size_t rounds, const Problem& problem, std::vector<std::string> names)
      : trees_(graph::parse_xgboost(ubj, rounds)),
        outputs_(problem.outputs()),
        rounds_(rounds),
        names_(std::move(names)) {
    must_boost(XGBoosterCreate(nullptr, 0, &booster_.at), "make a model");
    must_boost(XGBoosterLoadModelFromBuffer(booster_.at, ubj.data(), ubj.size()), "load a model");
  }

  std::vector<float> predict(const Packed& rows, const Look& look) override {
    std::vector<float> out;
    out.reserve(rows.rows() * outputs_);
    RowBlock block;
    for (std::size_t first = 0; first < rows.rows(); first += kRowsAtOnce) {
      if (look) look();
      const auto n = std::min(kRowsAtOnce, rows.rows() - first);
      rows.read(first, n, block);
      const auto config = fmt::format(
          R"({{"type": 0, "training": false, "iteration_begin": 0, "iteration_end": {}, "strict_shape": true, "cache_id": 0, "missing": NaN}})",
          rounds_);
      const bst_ulong* shape = nullptr;
      bst_ulong dimensions = 0;
      const float* values = nullptr;
      must_boost(XGBoosterPredictFromDense(
                     booster_.at,
                     array_of(block.numbers.data(), n, rows.layout().numbers, rows.layout().numbers * 4, "<f4").c_str(),
                     config.c_str(), nullptr, &shape, &dimensions, &values),
                 "predict");
      out.insert(out.end(), values, values + n * outputs_);
    }
    return out;
  }

  std::string emit(graph::Graph& graph, const graph::Transform::Emitted& inputs) override {
    return trees_.emit(graph, inputs.floats).predictions;
  }

  std::vector<Importance> importance() override {
    const char** features = nullptr;
    const bst_ulong* shape = nullptr;
    const float* gains = nullptr;
    bst_ulong count = 0, dimensions = 0;
    must_boost(XGBoosterFeatureScore(booster_.at, R"({"importance_type": "total_gain"})", &count, &features,
                                     &dimensions, &shape, &gains),
               "rank features");
    std::vector<Importance> out;
    double sum = 0;
    for (bst_ulong i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(std::strtoull(features[i] + 1, nullptr, 10));  // "f12"
      out.push_back({index < names_.size() ? names_[index] : features[i], gains[i]});
      sum += gains[i];
    }
    for (auto& one : out) one.share /= sum > 0 ? sum : 1;
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
    return out;
  }

 private:
  graph::TreeEnsemble trees_;
  const std::size_t outputs_, rounds_;
  const std::vector<std::string> names_;
  Booster booster_;
};

Bytes bytes_of_buffer(const char* data, bst_ulong size) {
  const auto view = std::as_bytes(std::span(data, size));
  return {view.begin(), view.end()};
}

// "[3]\ttrain-auc:0.74\tvalid-auc:0.73" -> the two numbers.
std::vector<double> numbers_of(std::string_view line) {
  std::vector<double> out;
  for (std::size_t at = line.find(':'); at != std::string_view::npos; at = line.find(':', at + 1))
    out.push_back(std::strtod(std::string(line.substr(at + 1, line.find('\t', at) - at - 1)).c_str(), nullptr));
  return out;
}

class TreeTraining {
 public:
  TreeTraining(const recipe::Training& training, const Problem& problem, const graph::Transform& transform,
               const Rows::Parts& parts, Surroundings& around)
      : training_(training),
        problem_(problem),
        transform_(transform),
        around_(around),
        metric_(metric_of(training, problem)) {
    const auto weights = problem.objective == Objective::ranking        ? Feed::Weights::groups
                         : training.balance || !training.weight.empty() ? Feed::Weights::rows
                                                                        : Feed::Weights::none;
    Feed(*parts.train, transform.float_categories(), around.look).make(train_, nullptr, around.threads, weights);
    Feed(*parts.valid, transform.float_categories(), around.look).make(valid_, &train_, around.threads, weights);
    if (training.trees.subsample < 1) read_weights(*parts.train);
    const DMatrixHandle both[] = {train_.at, valid_.at};
    must_boost(XGBoosterCreate(both, 2, &booster_.at), "make a model");
    resume();
    for (const auto& [key, value] : parameters(training, problem, transform, around.threads))
      must_boost(XGBoosterSetParam(booster_.at, key.c_str(), value.c_str()), key.c_str());
  }

  std::unique_ptr<Model> run() {
    auto saved = around_.clock.now();
    const auto rounds = static_cast<std::size_t>(training_.trees.rounds);
    around_.enter("grow");
    while (round_ < rounds &&
           !(training_.patience > 0 && round_ > best_round_ + static_cast<std::size_t>(training_.patience))) {
      if (round_ > 0 && around_.time_is_up()) break;
      choose_rows();
      must_boost(XGBoosterUpdateOneIter(booster_.at, static_cast<int>(round_), train_.at), "grow a tree");
      ++round_;
      if (around_.profile) around_.profile->step();
      around_.enter("evaluate");
      evaluate(rounds);
      around_.enter("checkpoint");
      const bool stop = around_.must_stop();
      if (stop || around_.clock.now() - saved >= sys::Micros(training_.checkpoints.every_us)) {
        save();
        saved = around_.clock.now();
      }
      if (stop) throw Stopped{};
      around_.enter("grow");
    }
    save();  // what follows may be stopped, too
    return finish();
  }

 private:
  // What each row weighs, or of a ranking each group, which all weigh alike.
  void read_weights(const Packed& rows) {
    RowBlock block;
    std::optional<float> group;
    for (std::size_t first = 0; first < rows.rows(); first += kRowsAtOnce) {
      rows.read(first, std::min(kRowsAtOnce, rows.rows() - first), block);
      if (problem_.objective != Objective::ranking) {
        weights_.insert(weights_.end(), block.weights.begin(), block.weights.end());
        continue;
      }
      for (const float one : block.groups)
        if (one != group) group = one, weights_.push_back(1);
    }
    chosen_.resize(weights_.size());
  }

  // The rows, or the groups, that a round learns from; the others weigh nothing. XGBoost's own choice depends on what
  // its process drew before, and a run that goes on would choose others.
  void choose_rows() {
    const double share = training_.trees.subsample;
    if (share >= 1) return;
    const auto least = static_cast<std::uint64_t>(share * 0x1p32);
    loader::Mix mix(static_cast<std::uint64_t>(training_.seed), round_, 0);
    for (std::size_t i = 0; i < weights_.size(); ++i) chosen_[i] = mix.next() >> 32 < least ? weights_[i] : 0;
    // Of a few it may be none, of which XGBoost cannot learn.
    if (std::all_of(chosen_.begin(), chosen_.end(), [](float w) { return w == 0; })) chosen_ = weights_;
    must_boost(XGDMatrixSetDenseInfo(train_.at, "weight", chosen_.data(), chosen_.size(), 1), "choose rows");
  }

  void evaluate(std::size_t rounds) {
    const DMatrixHandle both[] = {train_.at, valid_.at};
    const char* names[] = {"train", "valid"};
    const char* line = nullptr;
    must_boost(XGBoosterEvalOneIter(booster_.at, static_cast<int>(round_ - 1), const_cast<DMatrixHandle*>(both), names,
                                    2, &line),
               "evaluate");
    const auto values = numbers_of(line);
    if (values.size() != 2 || std::isnan(values[1]))
      throw Error(Code::invalid, fmt::format("{} of the rows to stop by is not a number", metric_));
    const bool better = best_round_ == 0 || (higher() ? values[1] > best_ : values[1] < best_);
    if (better) best_ = values[1], best_round_ = round_;
    Told told{round_, rounds, {{"train_" + metric_, values[0]}, {"valid_" + metric_, values[1]}}, {}};
    if (around_.profile) told.aside = around_.profile->since_last();
    around_.tell(told);
  }
  bool higher() const { return metric_ == "auc" || metric_.starts_with("ndcg"); }

  std::unique_ptr<Model> finish() {
    const char* data = nullptr;
    bst_ulong size = 0;
    must_boost(XGBoosterSaveModelToBuffer(booster_.at, R"({"format": "ubj"})", &size, &data), "save the model");
    return std::make_unique<TreeModel>(bytes_of_buffer(data, size), best_round_, problem_, transform_.float_names());
  }

  void save() {
    const char* data = nullptr;
    bst_ulong size = 0;
    must_boost(XGBoosterSerializeToBuffer(booster_.at, &size, &data), "write a checkpoint");
    Checkpoint checkpoint;
    checkpoint.number = round_;
    checkpoint.parts["booster"] = bytes_of_buffer(data, size);
    ByteWriter position;
    position.u64(round_);
    position.u64(best_round_);
    position.u64(std::bit_cast<std::uint64_t>(best_));
    checkpoint.parts["position"] = position.take();
    checkpoint.parts["transform"] = transform_.encode();
    around_.checkpoints.save(checkpoint);
  }

  void resume() {
    const auto checkpoint = around_.checkpoints.newest();
    if (!checkpoint) return;
    const auto& booster = checkpoint->parts.at("booster");
    must_boost(XGBoosterUnserializeFromBuffer(booster_.at, booster.data(), booster.size()), "read a checkpoint");
    ByteReader position(checkpoint->parts.at("position"));
    round_ = position.u64();
    best_round_ = position.u64();
    best_ = std::bit_cast<double>(position.u64());
  }

  const recipe::Training& training_;
  const Problem& problem_;
  const graph::Transform& transform_;
  Surroundings& around_;
  const std::string metric_;
  Matrix train_, valid_;
  std::vector<float> weights_, chosen_;  // of the rows to learn from
  Booster booster_;
  std::size_t round_ = 0, best_round_ = 0;  // rounds done; of the best, counted from 1
  double best_ = 0;
};

}  // namespace

std::int64_t tree_bytes(const Problem& problem, std::size_t features) {
  return static_cast<std::int64_t>(problem.rows[0]) * (static_cast<std::int64_t>(problem.outputs()) * kTreeRowBytes +
                                                       static_cast<std::int64_t>(features) * kTreeValueBytes);
}

bool trees_fit(const Problem& problem, std::size_t features, std::int64_t memory_bytes) {
  return tree_bytes(problem, features) < memory_bytes / 2;
}

namespace {

// A name that is nobody's would be a promise that nobody keeps.
void check_monotone(const recipe::Training& training, const graph::Transform& transform) {
  constexpr std::size_t kNamesMax = 30;
  const auto& names = transform.float_names();
  for (const auto& [name, way] : training.trees.monotone) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw Error(Code::invalid, fmt::format("trees.monotone: there is no feature '{}'; there are {}{}", name,
                                             fmt::join(std::span(names).first(std::min(names.size(), kNamesMax)), ", "),
                                             names.size() > kNamesMax ? ", ..." : ""));
    if (transform.float_categories()[static_cast<std::size_t>(found - names.begin())] > 0)
      throw Error(Code::invalid,
                  fmt::format("trees.monotone: '{}' is a category, which neither rises nor falls", name));
  }
}

}  // namespace

std::unique_ptr<Model> train_trees(const recipe::Training& training, const Problem& problem,
                                   const graph::Transform& transform, const Rows::Parts& parts, Surroundings& around) {
  check_monotone(training, transform);
  const auto features = transform.float_names().size();
  if (!trees_fit(problem, features, around.memory_bytes))
    throw Error(
        Code::invalid,
        fmt::format(
            "resources.memory: boosting keeps {} bytes of each of {} rows with {} features in memory, and a "
            "half of {} MiB is too little for that; model: network reads rows as it goes",
            tree_bytes(problem, features) / std::max<std::int64_t>(1, static_cast<std::int64_t>(problem.rows[0])),
            problem.rows[0], features, around.memory_bytes >> 20));
  return TreeTraining(training, problem, transform, parts, around).run();
}

}  // namespace falaj::train
