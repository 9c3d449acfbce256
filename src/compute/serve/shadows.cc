// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/shadows.h"

#include <sched.h>

#include "foundation/base/error.h"

namespace falaj::serve {

Shadows::Shadows(const sys::Clock& clock, CrashNote::Name* note, std::size_t bytes_max)
    : clock_(clock), bytes_max_(bytes_max), note_(note), waiting_(kWaitingMax) {
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
                    std::span<const infer::TensorView> inputs) noexcept {
  bool taken = false;
  try {
    taken = shadow.held->model && waiting_.size() < kWaitingMax && take_copy(from, shadow, answers, inputs);
  } catch (const std::exception&) {
    // No memory for it.
  }
  if (!taken) shadow.counts->dropped_shadows.fetch_add(1, std::memory_order_relaxed);
}

// Room is taken before the copy is made: what does not fit costs nothing.
bool Shadows::take_copy(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const Held& answers,
                        std::span<const infer::TensorView> inputs) {
  const auto& held = *shadow.held;
  Copy copy{from, &shadow, {}, 0};
  for (const auto& input : inputs) {
    copy.bytes += input.bytes.size() + input.texts.size() * sizeof(std::string);
    for (const auto text : input.texts) copy.bytes += text.size();
  }
  const auto bytes = copy.bytes;
  bool taken = false;
  if (bytes_.fetch_add(bytes) + bytes <= bytes_max_) {
    try {
      copy.inputs.resize(held.inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto place = held.input_of.find(answers.inputs[i].name);
        if (place == held.input_of.end()) continue;  // another model may need less
        copy.inputs[place->second] = infer::copy_of(inputs[i]);
      }
      taken = waiting_.try_push(copy);
    } catch (...) {
      bytes_.fetch_sub(bytes);
      throw;
    }
  }
  if (!taken) bytes_.fetch_sub(bytes);
  return taken;
}

void Shadows::run() {
  while (auto copy = waiting_.pop()) {
    ask(*copy);
    const auto bytes = copy->bytes;
    copy.reset();
    bytes_.fetch_sub(bytes);
  }
}

void Shadows::ask(const Copy& copy) const noexcept {
  const auto began = clock_.now();
  auto& counts = *copy.shadow->counts;
  try {
    std::vector<std::vector<std::string_view>> texts;
    std::vector<infer::TensorView> views;
    for (const auto& input : copy.inputs) {
      texts.emplace_back(input.texts.begin(), input.texts.end());
      views.push_back(infer::TensorView::of(input, texts.back()));
    }
    const auto& model = *copy.shadow->held->model;
    const auto rows = model.check(views);
    {
      const AtWork at_work(note_, copy.shadow->held->sha256);
      model.run(views);
    }
    const auto took = (clock_.now() - began).count();
    counts.count_calls(1, rows, took);
    counts.success.add(took);
    counts.infer.add(took);
    counts.latency.add(took);
    counts.last_us.store(clock_.wall().count(), std::memory_order_relaxed);
  } catch (const std::exception&) {  // no memory, too
    counts.fail.add((clock_.now() - began).count());
  }
}

}  // namespace falaj::serve
