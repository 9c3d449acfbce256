// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/shadows.h"

#include <sched.h>

#include "foundation/base/error.h"

namespace falaj::serve {

Shadows::Shadows(const sys::Clock& clock, CrashNote::Name* note) : clock_(clock), note_(note), waiting_(kWaitingMax) {
  thread_ = std::thread([this] {
    const sched_param lowest{};
    ::sched_setscheduler(0, SCHED_IDLE, &lowest);  // where it is not allowed it runs as others do
    run();
  });
}

Shadows::~Shadows() {
  waiting_.close();
  thread_.join();
}

void Shadows::offer(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const Held& answers,
                    std::span<const infer::TensorView> inputs) {
  const auto& held = *shadow.held;
  Copy copy{from, &shadow, {}};
  copy.inputs.resize(held.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto place = held.input_of.find(answers.inputs[i].name);
    if (place == held.input_of.end()) continue;  // another model may need less
    copy.inputs[place->second] = infer::copy_of(inputs[i]);
  }
  if (!held.model || !waiting_.try_push(copy)) shadow.counts->dropped_shadows.fetch_add(1, std::memory_order_relaxed);
}

void Shadows::run() {
  while (auto copy = waiting_.pop()) {
    const auto began = clock_.now();
    auto& counts = *copy->shadow->counts;
    try {
      std::vector<std::vector<std::string_view>> texts;
      std::vector<infer::TensorView> views;
      for (const auto& input : copy->inputs) {
        texts.emplace_back(input.texts.begin(), input.texts.end());
        views.push_back(infer::TensorView::of(input, texts.back()));
      }
      const auto& model = *copy->shadow->held->model;
      const auto rows = model.check(views);
      const AtWork at_work(note_, copy->shadow->held->sha256);
      model.run(views);
      const auto took = (clock_.now() - began).count();
      counts.count_calls(1, rows, took);
      counts.success.add(took);
      counts.infer.add(took);
      counts.latency.add(took);
      counts.last_us.store(clock_.wall().count(), std::memory_order_relaxed);
    } catch (const Error&) {
      counts.fail.add((clock_.now() - began).count());
    }
  }
}

}  // namespace falaj::serve
