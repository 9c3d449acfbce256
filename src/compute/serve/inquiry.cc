// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/inquiry.h"

#include <algorithm>

#include <fmt/format.h>

#include "compute/serve/rows.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kAnswerBytesKept = std::size_t{1} << 20;

std::string names_of(std::span<const graph::Port> ports) {
  std::string out;
  for (const auto& port : ports) out += (out.empty() ? "" : ", ") + port.name;
  return out.substr(0, 500);
}

class TensorInquiry final : public Inquiry {
 public:
  TensorInquiry(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint, const ServedVariant& variant,
                const sys::Clock& clock, protocol::Ask ask, protocol::Done done)
      : Inquiry(std::move(from), endpoint, variant, clock), ask_(std::move(ask)), done_(std::move(done)) {
    const auto& held = *variant.held;
    const auto& ports = held.inputs;
    inputs.resize(ports.size());
    thread_local std::vector<char> given;  // kept: this is done for every request
    given.assign(ports.size(), 0);
    for (auto& input : ask_.inputs) {
      const auto place = held.input_of.find(input.name);
      if (place == held.input_of.end())
        throw Error(Code::invalid, fmt::format("the model has no input '{}'; it has {}", input.name, names_of(ports)));
      if (given[place->second]) throw Error(Code::invalid, fmt::format("input '{}' is given twice", input.name));
      given[place->second] = 1;
      if (input.sizes.size() > infer::Shape::kRankMax)
        throw Error(Code::invalid,
                    fmt::format("input '{}' has more than {} sizes", input.name, infer::Shape::kRankMax));
      auto& tensor = inputs[place->second];
      tensor = {input.element, infer::Shape(input.sizes), input.bytes, {}};
      if (input.texts.empty()) continue;
      texts_.resize(ports.size());
      auto& texts = texts_[place->second];
      texts.assign(input.texts.begin(), input.texts.end());
      tensor.texts = texts;
    }
    for (std::size_t i = 0; i < ports.size(); ++i)
      if (!given[i])
        throw Error(Code::invalid,
                    fmt::format("input '{}' is missing; the model needs {}", ports[i].name, names_of(ports)));
    for (const auto& output : ask_.outputs) {
      const auto place = held.output_of.find(output);
      if (place == held.output_of.end())
        throw Error(Code::invalid,
                    fmt::format("the model has no output '{}'; it has {}", output, names_of(held.outputs)));
      wanted.push_back(place->second);
    }
    rows = held.model->check(inputs);
    if (ask_.priority > 0) priority = static_cast<std::uint8_t>(std::min(ask_.priority, kPriorities) - 1);
    within(ask_.timeout_us);
  }

 private:
  void tell(const infer::Ran& ran) override {
    // Kept, with its memory, for the next on this thread, unless whoever is told takes something out of it.
    thread_local protocol::Outcome kept;
    auto* answer = std::get_if<protocol::Answer>(&kept);
    if (!answer) answer = &kept.emplace<protocol::Answer>();
    answer->model = endpoint_.plan.name;
    answer->version = variant_.version_text;
    answer->parameters.clear();
    answer->outputs.resize(ran.outputs.size());
    const auto& ports = variant_.held->outputs;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < ran.outputs.size(); ++i) {
      auto& output = answer->outputs[i];
      output.name = ports[wanted.empty() ? i : wanted[i]].name;
      infer::copy_into(output.tensor, ran.outputs[i]);
      bytes += output.tensor.bytes.size();
    }
    name_prediction(answer->prediction_id);
    done_(std::move(kept));
    if (bytes > kAnswerBytesKept) kept = protocol::Answer();
  }
  void tell(const Error& why) override { done_(why); }

  protocol::Ask ask_;
  protocol::Done done_;
  std::vector<std::vector<std::string_view>> texts_;
};

class RowInquiry final : public Inquiry {
 public:
  using RowsDone = std::function<void(std::variant<protocol::Predicted, Error>)>;
  RowInquiry(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint, const ServedVariant& variant,
             const sys::Clock& clock, const protocol::Predict& ask, RowsDone done)
      : Inquiry(std::move(from), endpoint, variant, clock), asked_rows_(ask.rows.size()), done_(std::move(done)) {
    const auto& model = *variant.held->model;
    feature_times_ = ask.feature_times;
    columns_ = columns_of(ask.rows, model.inputs(), ask.columns);
    texts_.resize(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      texts_[i].assign(columns_[i].texts.begin(), columns_[i].texts.end());
      inputs.push_back(infer::TensorView::of(columns_[i], texts_[i]));
    }
    rows = model.check(inputs);
    within(ask.timeout_us);
  }

 private:
  void tell(const infer::Ran& ran) override {
    protocol::Predicted out;
    out.model = endpoint_.plan.name;
    out.version = variant_.version_text;
    out.rows = rows_of(asked_rows_, variant_.held->outputs, ran.outputs);
    out.served["variant"] = variant_.plan.name;
    std::string name;
    name_prediction(name);
    if (!name.empty()) out.served[protocol::kPredictionId] = name;
    done_(std::move(out));
  }
  void tell(const Error& why) override { done_(why); }

  const std::size_t asked_rows_;
  RowsDone done_;
  std::vector<graph::Tensor> columns_;
  std::vector<std::vector<std::string_view>> texts_;
};

}  // namespace

Inquiry::Inquiry(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint, const ServedVariant& variant,
                 const sys::Clock& clock)
    : from_(std::move(from)), endpoint_(endpoint), variant_(variant), clock_(clock), began_(clock.now()) {
  priority = kPriorityDefault;
  variant_.counts->pending.fetch_add(1, std::memory_order_relaxed);
}

Inquiry::~Inquiry() { variant_.counts->pending.fetch_sub(1, std::memory_order_relaxed); }

void Inquiry::within(std::int64_t timeout_us) {
  const auto own = variant_.rule.deadline_default.count();
  const auto allowed = timeout_us > 0 ? (own > 0 ? std::min(timeout_us, own) : timeout_us) : own;
  if (allowed > 0) deadline = began_ + sys::Micros(allowed);
}

void Inquiry::give_name(Predictions& log, std::string key) {
  log_ = &log;
  id_ = log.next_id();
  key_ = std::move(key);
}

void Inquiry::name_prediction(std::string& out) const {
  out.clear();
  if (!log_) return;
  append_id(out, id_);
  out += variant_.name_ending;
}

void Inquiry::keep(const infer::Ran& ran) {
  Kept kept;
  kept.from = from_;
  kept.endpoint = &endpoint_;
  kept.variant = &variant_;
  kept.id = id_;
  kept.at_us = clock_.wall().count();
  kept.took_us = (clock_.now() - began_).count();
  kept.rows = rows;
  kept.key = std::move(key_);
  kept.feature_times = std::move(feature_times_);
  kept.wanted = wanted;
  kept.pack(inputs, ran.outputs);
  log_->keep(std::move(kept));
}

void Inquiry::answer(const infer::Ran& ran) noexcept {
  auto& counts = *variant_.counts;
  try {
    // First, as what the request brought is gone when it is answered.
    if (variant_.watched) variant_.watched->see(inputs, ran.outputs, wanted, rows, clock_);
    if (variant_.compared) variant_.compared->stream.see(inputs, ran.outputs, wanted, rows, clock_);
    if (log_ && endpoint_.log && traffic::place_of(id_) < endpoint_.plan.log->share) keep(ran);
    if (!cache_key_.empty()) variant_.cache->keep(std::move(cache_key_), ran.outputs);
    tell(ran);
  } catch (const std::exception& e) {
    log::error("answer_failed", {{"endpoint", endpoint_.full_name}, {"what", e.what()}});
  }
  const auto took = (clock_.now() - began_).count();
  counts.success.add(took);
  counts.queue.add(ran.waited.count());
  counts.infer.add(ran.took.count());
  counts.latency.add(took);
}

void Inquiry::refuse(const Error& why) noexcept {
  variant_.counts->fail.add((clock_.now() - began_).count());
  try {
    tell(why);
  } catch (const std::exception& e) {
    log::error("answer_failed", {{"endpoint", endpoint_.full_name}, {"what", e.what()}});
  }
}

std::unique_ptr<Inquiry> ask_tensors(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint,
                                     const ServedVariant& variant, const sys::Clock& clock, protocol::Ask ask,
                                     protocol::Done done) {
  return std::make_unique<TensorInquiry>(std::move(from), endpoint, variant, clock, std::move(ask), std::move(done));
}

std::unique_ptr<Inquiry> ask_rows(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint,
                                  const ServedVariant& variant, const sys::Clock& clock, const protocol::Predict& ask,
                                  std::function<void(std::variant<protocol::Predicted, Error>)> done) {
  return std::make_unique<RowInquiry>(std::move(from), endpoint, variant, clock, ask, std::move(done));
}

}  // namespace falaj::serve
