// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/batch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>

namespace falaj::infer {
namespace {

constexpr double kWorthIt = 0.95;  // a size must cost less than this share of another's to be called cheaper
constexpr std::size_t kMergedKept = (8 << 20) / sizeof(std::uint64_t);  // one huge batch is not paid for ever after
constexpr std::uint64_t kLookAround = 64;  // one call of so many tries a size that is not the best known

// The power of two that `rows` is nearest to, by its exponent.
std::size_t size_class(std::uint32_t rows) {
  if (rows <= 1) return 0;
  const auto below = static_cast<std::size_t>(std::bit_width(rows) - 1);
  return below + (rows - (1U << below) > (1U << below) / 2 ? 1 : 0);
}

}  // namespace

// ---- Costs.
void Costs::learn(std::uint32_t rows, double us) {
  if (rows == 0) return;
  Known& known = known_[std::min(size_class(rows), kSizes - 1)];
  constexpr std::uint32_t kSettled = 16;
  // One call that another process interrupted says nothing; if calls became slow, this follows in a few of them.
  if (known.calls > 0) us = std::min(us, 4 * known.us + 10);
  const double share = 1.0 / (std::min(known.calls, kSettled) + 1);
  known.us += share * (us - known.us);
  known.rows += share * (rows - known.rows);
  if (known.calls < kSettled) ++known.calls;
}

std::optional<double> Costs::us_of(std::uint32_t rows) const {
  const Known *below = nullptr, *above = nullptr;
  for (const Known& known : known_) {
    if (known.calls == 0) continue;
    if (known.rows <= rows) below = &known;
    if (known.rows >= rows && !above) above = &known;
  }
  if (!below && !above) return {};
  if (!above) return below->us * rows / below->rows;
  if (!below || above->rows <= below->rows) return above->us;
  const double part = (rows - below->rows) / (above->rows - below->rows);
  return below->us + part * (above->us - below->us);
}

std::uint32_t Costs::most_known() const {
  for (std::size_t at = kSizes; at-- > 0;)
    if (known_[at].calls > 0) return 1U << at;
  return 0;
}

std::uint32_t Costs::best_rows(std::uint32_t waiting, std::uint32_t rows_max, std::uint64_t turn) const {
  const std::uint32_t most = std::max(1U, std::min(waiting, rows_max));
  const std::size_t top = std::min(size_class(most), kSizes - 1);
  if (known_[top].calls == 0 || top == 0) return most;
  if (turn % kLookAround == kLookAround - 1) {
    const auto other = static_cast<std::size_t>(turn / kLookAround) % (top + 1);
    return other == top ? most : 1U << other;
  }
  std::size_t best = top;
  for (std::size_t at = top; at-- > 0;)
    if (known_[at].calls > 0 && known_[at].us_per_row() < kWorthIt * known_[best].us_per_row()) best = at;
  return best == top ? most : std::min(most, 1U << best);
}

bool Costs::gains_from_more(std::uint32_t waiting, std::uint32_t rows_max) const {
  const std::size_t now = std::min(size_class(std::max(1U, waiting)), kSizes - 1);
  const std::size_t top = std::min(size_class(std::max(1U, rows_max)), kSizes - 1);
  if (known_[now].calls == 0) return true;
  for (std::size_t at = now + 1; at <= top; ++at)
    if (known_[at].calls == 0 || known_[at].us_per_row() < kWorthIt * known_[now].us_per_row()) return true;
  return false;
}

// ---- The decision.
Decision decide(std::span<const Line> lines, Micros now, const BatchRule& rule, const Costs& costs,
                std::uint64_t turn) {
  Decision out;
  std::size_t best = lines.size();
  for (std::size_t at = 0; at < lines.size(); ++at) {
    const Line& line = lines[at];
    if (line.rows == 0) continue;
    const bool before = best == lines.size() || line.priority < lines[best].priority ||
                        (line.priority == lines[best].priority && line.oldest < lines[best].oldest);
    if (!before) continue;
    std::uint32_t rows = line.rows;
    if (rule.priorities > 1) {
      rows = 0;
      for (const Line& other : lines)
        if (other.kind == line.kind) rows += other.rows;
    }
    Micros due = line.oldest + rule.wait_max;
    if (line.deadline != kNever && rule.wait_max > Micros{0}) {
      const auto takes = Micros(static_cast<std::int64_t>(costs.us_of(std::min(rows, rule.rows_max)).value_or(0)));
      due = std::min(due, line.deadline - takes);
    }
    if (now >= due || rows >= rule.rows_max || !costs.gains_from_more(rows, rule.rows_max)) {
      best = at;
      out.line = at;
      out.rows = costs.best_rows(rows, rule.rows_max, turn);
    } else {
      out.look_again = std::min(out.look_again, due);
    }
  }
  if (out.rows > 0) out.look_again = kNever;
  return out;
}

// ---- The queue.
std::optional<std::size_t> BatchQueue::line_of(const Request& request) {
  const auto alike = [&](const Kind& kind) {
    if (kind.wanted != request.wanted || kind.shapes.size() != request.inputs.size()) return false;
    for (std::size_t at = 0; at < kind.shapes.size(); ++at) {
      const auto a = kind.shapes[at].sizes(), b = request.inputs[at].shape.sizes();
      if (a.size() != b.size() || (!a.empty() && !std::equal(a.begin() + 1, a.end(), b.begin() + 1))) return false;
    }
    return true;
  };
  std::uint32_t number = 0;
  if (together_) {
    auto found = std::find_if(kinds_.begin(), kinds_.end(), alike);
    if (found == kinds_.end()) {
      if (kinds_.size() >= kKindsMax) forget_empty();
      if (kinds_.size() >= kKindsMax) return {};
      Kind kind{request.wanted, {}, next_kind_++};
      for (const auto& input : request.inputs) kind.shapes.push_back(input.shape);
      found = kinds_.insert(kinds_.end(), std::move(kind));
    }
    number = found->number;
  }
  for (std::size_t at = 0; at < lines_.size(); ++at)
    if (lines_[at].kind == number && lines_[at].priority == request.priority) return at;
  lines_.push_back({request.priority, number, Micros{0}, kNever, 0});
  waiting_.emplace_back();
  return lines_.size() - 1;
}

// Kinds and lines nobody waits in.
void BatchQueue::forget_empty() {
  for (std::size_t at = lines_.size(); at-- > 0;) {
    if (lines_[at].rows > 0 || !waiting_[at].empty()) continue;
    lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(at));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const auto unused = [&](const Kind& kind) {
    return std::none_of(lines_.begin(), lines_.end(), [&](const Line& line) { return line.kind == kind.number; });
  };
  kinds_.erase(std::remove_if(kinds_.begin(), kinds_.end(), unused), kinds_.end());
}

Micros BatchQueue::drained_in() const {
  const std::uint32_t each = std::max(1U, std::min(rows_, rule_.rows_max));
  const double us = costs_.us_of(each).value_or(1'000) * (static_cast<double>(rows_) / each);
  return std::max(Micros{1'000}, Micros(static_cast<std::int64_t>(us)));
}

std::optional<Micros> BatchQueue::push(std::unique_ptr<Request>& request, Micros now) {
  const std::uint32_t rows = std::max(1U, together_ ? request->rows : 1U);
  // One that is larger than the whole queue is still taken when nobody waits.
  if (size_ > 0 && (rows > rule_.queue_rows_max || rows_ > rule_.queue_rows_max - rows)) return drained_in();
  request->came = now;
  request->priority =
      std::min<std::uint8_t>(request->priority, static_cast<std::uint8_t>(std::max<int>(1, rule_.priorities) - 1));
  if (request->deadline == Micros{0} && rule_.deadline_default > Micros{0})
    request->deadline = now + rule_.deadline_default;
  const auto line = line_of(*request);
  if (!line) return drained_in();
  lines_[*line].rows += rows;
  rows_ += rows;
  ++size_;
  waiting_[*line].push_back(std::move(request));
  if (waiting_[*line].size() == 1) look_at_head(*line);
  return {};
}

void BatchQueue::look_at_head(std::size_t line) {
  if (waiting_[line].empty()) return;
  const Request& head = *waiting_[line].front();
  lines_[line].oldest = head.came;
  lines_[line].deadline = head.deadline == Micros{0} ? kNever : head.deadline;
}

void BatchQueue::take(std::size_t line, std::uint32_t rows_most, Micros now, Batch& batch) {
  auto& waiting = waiting_[line];
  while (!waiting.empty()) {
    Request& head = *waiting.front();
    const std::uint32_t rows = std::max(1U, together_ ? head.rows : 1U);
    const bool stale = rule_.stale_after > Micros{0} && now - head.came > rule_.stale_after;
    const bool late = stale || (head.deadline != Micros{0} && now >= head.deadline);
    if (!late && !batch.requests.empty() && (rows > rows_most || batch.rows > rows_most - rows)) break;
    lines_[line].rows -= rows;
    rows_ -= rows;
    --size_;
    if (!late) batch.rows += rows;
    (late ? batch.late : batch.requests).push_back(std::move(waiting.front()));
    waiting.pop_front();
    if (!together_ && !batch.requests.empty()) break;
  }
  look_at_head(line);
}

Micros BatchQueue::next(Micros now, Batch& batch) {
  CHECK(batch.empty(), "a batch is run before the next is taken");
  batch.rows = 0;
  BatchRule rule = rule_;
  if (!together_) rule.rows_max = 1, rule.wait_max = Micros{0};
  while (batch.requests.empty()) {
    const Decision decision = decide(lines_, now, rule, costs_, turn_);
    if (decision.rows == 0) return decision.look_again;
    const std::uint32_t kind = lines_[decision.line].kind;
    take(decision.line, decision.rows, now, batch);
    // The rest of the call is for those of its kind that are less urgent.
    for (std::uint8_t priority = 0; together_ && rule.priorities > 1 && priority < rule.priorities; ++priority)
      for (std::size_t at = 0; at < lines_.size(); ++at)
        if (at != decision.line && lines_[at].kind == kind && lines_[at].priority == priority && lines_[at].rows > 0 &&
            batch.rows < decision.rows)
          take(at, decision.rows, now, batch);
  }
  ++turn_;
  return now;
}

std::vector<std::unique_ptr<Request>> BatchQueue::drain() {
  std::vector<std::unique_ptr<Request>> out;
  out.reserve(size_);
  for (auto& waiting : waiting_)
    for (auto& request : waiting) out.push_back(std::move(request));
  lines_.clear(), waiting_.clear(), kinds_.clear();
  rows_ = 0, size_ = 0;
  return out;
}

// ---- Running.
void BatchRun::refuse_late() {
  const Micros now = clock_.now();
  for (auto& request : batch_.late)
    request->refuse(request->deadline != Micros{0} && now >= request->deadline
                        ? Error(Code::deadline, "the request waited until its deadline had passed")
                        : Error(Code::exhausted, "the request waited too long for its answer to be in time"));
  late_ = static_cast<std::uint32_t>(batch_.late.size());
  batch_.late.clear();
}

BatchRun::Called BatchRun::run(std::span<const TensorView> inputs, std::span<const std::uint16_t> wanted,
                               std::uint32_t rows) const {
  Called out;
  out.rows = rows;
  out.began = clock_.now();
  try {
    out.outputs = model_.run(inputs, wanted);
  } catch (const Error& error) {
    out.error = error;
  } catch (const std::exception& error) {
    out.error = Error(Code::internal, error.what());
  }
  out.took = clock_.now() - out.began;
  return out;
}

bool BatchRun::call_together() {
  std::uint32_t rows = 0;
  for (const auto& request : batch_.requests) rows += request->rows;
  const auto began = clock_.now();
  try {
    merge(rows);
  } catch (const std::exception&) {  // no memory for all at once
    return false;
  }
  all_ = run(batch_.inputs_, batch_.requests.front()->wanted, rows);
  merged_ = all_.began - began;
  if (all_.error) return false;
  for (const auto& tensor : all_.outputs.tensors())
    if (tensor.shape.rank() == 0 || tensor.shape[0] != std::int64_t{rows}) return false;
  return true;
}

void BatchRun::call() {
  const auto& requests = batch_.requests;
  if (requests.empty()) return;
  if (requests.size() == 1) {
    all_ = run(requests[0]->inputs, requests[0]->wanted, requests[0]->rows);
    return;
  }
  if (call_together()) return;
  for (const auto& request : requests) each_.push_back(run(request->inputs, request->wanted, request->rows));
}

void BatchRun::merge(std::uint32_t rows) {
  const auto& requests = batch_.requests;
  const std::size_t count = requests.front()->inputs.size();
  batch_.merged_.resize(count);
  batch_.inputs_.resize(count);
  for (std::size_t at = 0; at < count; ++at) {
    TensorView& all = batch_.inputs_[at];
    auto& merged = batch_.merged_[at];
    all.element = requests.front()->inputs[at].element;
    all.shape = requests.front()->inputs[at].shape;
    all.shape[0] = std::int64_t{rows};
    merged.texts.clear();
    std::size_t bytes = 0;
    for (const auto& request : requests) bytes += request->inputs[at].bytes.size();
    if (merged.numbers.size() > kMergedKept) merged.numbers = {};
    merged.numbers.resize((bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    auto* to = reinterpret_cast<std::byte*>(merged.numbers.data());
    all.bytes = {to, bytes};
    for (const auto& request : requests) {
      const TensorView& input = request->inputs[at];
      if (!input.bytes.empty()) std::memcpy(to, input.bytes.data(), input.bytes.size());
      to += input.bytes.size();
      merged.texts.insert(merged.texts.end(), input.texts.begin(), input.texts.end());
    }
    all.texts = merged.texts;
  }
}

void BatchRun::answer(Request& request, std::span<const TensorView> outputs, const Called& by) {
  batch_.latencies.push_back(by.began + by.took - request.came);
  request.answer({outputs, by.began - request.came, by.took, by.rows});
}

BatchDone BatchRun::tell() {
  BatchDone done;
  const auto began = clock_.now();
  done.late = late_;
  done.input = merged_;
  batch_.latencies.clear();
  auto& requests = batch_.requests;
  const auto count = [&](const Called& called) {
    ++done.calls;
    done.rows += called.rows;
    done.took += called.took;
  };
  const auto tell_alone = [&](Request& request, const Called& called) {
    if (called.error) {
      ++done.failed;
      return request.refuse(*called.error);
    }
    count(called);
    answer(request, called.outputs.tensors(), called);
  };
  if (!each_.empty()) {
    for (std::size_t i = 0; i < requests.size(); ++i) tell_alone(*requests[i], each_[i]);
  } else if (requests.size() == 1) {
    tell_alone(*requests[0], all_);
  } else if (!requests.empty()) {
    count(all_);
    std::size_t first = 0;
    for (auto& request : requests) {
      batch_.slices_.clear();
      for (const auto& tensor : all_.outputs.tensors()) batch_.slices_.push_back(tensor.rows(first, request->rows));
      first += request->rows;
      answer(*request, batch_.slices_, all_);
    }
  }
  done.answered = static_cast<std::uint32_t>(requests.size()) - done.failed;
  done.output = clock_.now() - began;
  requests.clear();
  batch_.rows = 0;
  return done;
}

BatchDone run_batch(const Model& model, Batch& batch, const sys::Clock& clock) {
  BatchRun run(model, batch, clock);
  run.refuse_late();
  run.call();
  return run.tell();
}

}  // namespace falaj::infer
