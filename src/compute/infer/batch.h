// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/infer/model.h"
#include "compute/infer/view.h"
#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/sys/clock.h"

// Putting requests together: what to run when, as a decision about values, and a queue that follows it.
namespace falaj::infer {

using sys::Micros;
inline constexpr Micros kNever = Micros::max();

// What the owner of a model says about its queue.
struct BatchRule {
  std::uint32_t rows_max = 32;          // most rows of one call; a request of more runs alone
  Micros wait_max{0};                   // longest that a request waits for company
  std::uint32_t queue_rows_max = 4096;  // rows waiting; beyond it requests are refused at once
  std::uint8_t priorities = 1;          // levels, 0 the most urgent; a request beyond them has the last
  Micros deadline_default{0};           // of requests that state none; 0 is none
  Micros stale_after{0};                // who waited longer is refused rather than answered too late; 0 is never
};

// How long calls of so many rows took lately: learnt, since on some models a batch is slower than its rows one by one.
class Costs {
 public:
  void learn(std::uint32_t rows, double us);
  // About how long a call takes; nothing while no call is known.
  std::optional<double> us_of(std::uint32_t rows) const;
  std::uint32_t most_known() const;  // the largest size there is experience with; 0 is none
  // Of `waiting` rows, how many one call should take to get the most rows done per second; at most `rows_max`.
  // Sizes not tried yet are tried, and every so often (`turn`) the next size again.
  std::uint32_t best_rows(std::uint32_t waiting, std::uint32_t rows_max, std::uint64_t turn) const;
  // Whether more rows than `waiting` would be done at less cost each, so that waiting for them can pay.
  bool gains_from_more(std::uint32_t waiting, std::uint32_t rows_max) const;

 private:
  static constexpr std::size_t kSizes = 17;  // powers of two up to 65,536
  struct Known {                             // moving means
    double us = 0, rows = 0;
    std::uint32_t calls = 0;
    double us_per_row() const { return us / rows; }
  };
  std::array<Known, kSizes> known_{};
};

// Requests that may run together and are equally urgent, oldest first.
struct Line {
  std::uint8_t priority = 0;
  std::uint32_t kind = 0;    // what may go together has the same
  Micros oldest{0};          // when the first came
  Micros deadline = kNever;  // of the first
  std::uint32_t rows = 0;    // waiting; 0 is an empty line
};

struct Decision {
  std::size_t line = 0;        // take from this one, then from those of its kind by urgency,
  std::uint32_t rows = 0;      // so many rows at most; 0: nothing now
  Micros look_again = kNever;  // when nothing is taken: at this time, unless something comes before
};

// Pure. Takes the most urgent line, of those the one whose head waited longest. Runs it when enough is there, when its
// head has waited long enough or must begin now to end by its deadline, or when waiting would gain nothing.
Decision decide(std::span<const Line> lines, Micros now, const BatchRule& rule, const Costs& costs, std::uint64_t turn);

// What happened, for whoever counts.
struct Ran {
  std::span<const TensorView> outputs;  // of this request alone, in the order of `wanted`; gone after the call
  Micros waited{0};                     // in the queue
  Micros took{0};                       // the call of the model
  std::uint32_t rows = 0;               // in that call, of all requests
};

// One request: its inputs, and what to do with the answer. Exactly one of answer() and refuse() is called, once, by the
// thread that runs the batch; neither throws. Then it is destroyed.
class Request {
 public:
  virtual ~Request() = default;

  std::vector<TensorView> inputs;     // checked (Model::check); what they show lives as long as the request
  std::vector<std::uint16_t> wanted;  // of the model's outputs; none is all
  std::uint32_t rows = 1;             // what check() said
  std::uint8_t priority = 0;
  Micros deadline{0};  // by the clock's now(); 0 is none
  Micros came{0};      // set by the queue

  virtual void answer(const Ran& ran) noexcept = 0;
  virtual void refuse(const Error& why) noexcept = 0;  // deadline, exhausted, invalid (the model failed), cancelled
};

// Requests taken out of a queue, and space to put them together in, which is kept from batch to batch.
struct Batch {
  std::vector<std::unique_ptr<Request>> requests;  // to run
  std::vector<std::unique_ptr<Request>> late;      // past their deadline, or stale: to be refused
  std::uint32_t rows = 0;
  std::vector<Micros> latencies;  // of those that the last run_batch answered, from the queue to the end of the call

  bool empty() const { return requests.empty() && late.empty(); }

 private:
  friend class BatchRun;
  struct Merged {
    std::vector<std::uint64_t> numbers;  // aligned for any element
    std::vector<std::string_view> texts;
  };
  std::vector<Merged> merged_;  // one per input
  std::vector<TensorView> inputs_, slices_;
};

struct BatchDone {
  std::uint32_t calls = 0;                           // of the model that worked
  std::uint32_t rows = 0;                            // in them
  Micros took{0};                                    // together
  Micros input{0}, output{0};                        // putting inputs together; telling the answers
  std::uint32_t answered = 0, failed = 0, late = 0;  // requests
};

// Not thread-safe: the thread that serves a lane owns it, or a mutex does.
class BatchQueue {
 public:
  // `together`: Model::rows_first(). Without it every request runs alone.
  BatchQueue(const BatchRule& rule, bool together) : rule_(rule), together_(together) {}

  // Takes the request, or returns when to try again, leaving it with the caller, who refuses it (exhausted).
  std::optional<Micros> push(std::unique_ptr<Request>& request, Micros now);

  // Fills `batch`, which must be empty, with what is to run now. When it stays empty: the time at which to call again,
  // unless something was pushed; kNever with an empty queue.
  Micros next(Micros now, Batch& batch);

  // What run_batch said.
  void learn(const BatchDone& done) {
    if (done.calls == 1) costs_.learn(done.rows, static_cast<double>(done.took.count()));
  }
  void set_rule(const BatchRule& rule) { rule_ = rule; }
  // Takes everything out, as when its model goes: the caller refuses or moves it.
  std::vector<std::unique_ptr<Request>> drain();

  const BatchRule& rule() const { return rule_; }
  const Costs& costs() const { return costs_; }
  std::uint32_t rows() const { return rows_; }  // waiting
  std::size_t size() const { return size_; }    // requests waiting
  bool empty() const { return size_ == 0; }

 private:
  struct Kind {  // what must be equal for requests to run together
    std::vector<std::uint16_t> wanted;
    std::vector<Shape> shapes;  // with rows left out
    std::uint32_t number = 0;
  };
  static constexpr std::size_t kKindsMax = 256;

  std::optional<std::size_t> line_of(const Request& request);  // nothing: there are too many kinds
  void take(std::size_t line, std::uint32_t rows_most, Micros now, Batch& batch);
  void look_at_head(std::size_t line);
  void forget_empty();
  Micros drained_in() const;

  BatchRule rule_;
  bool together_;
  Costs costs_;
  std::vector<Line> lines_;
  std::vector<std::deque<std::unique_ptr<Request>>> waiting_;  // one per line
  std::vector<Kind> kinds_;
  std::uint32_t next_kind_ = 0;
  std::uint32_t rows_ = 0;
  std::size_t size_ = 0;
  std::uint64_t turn_ = 0;
};

// A batch on its way through a model, in steps: call() may be made on another thread than the others, which touch what
// requests are answered by. Each is called once, in this order.
class BatchRun {
 public:
  BatchRun(const Model& model, Batch& batch, const sys::Clock& clock) : model_(model), batch_(batch), clock_(clock) {}

  void refuse_late();
  // Puts the inputs together and runs the model once. When that fails each request runs by itself, so that only who
  // made it fail is refused.
  void call();
  // Gives each request its rows, and leaves the batch empty.
  BatchDone tell();

 private:
  struct Called {  // of one call
    Outputs outputs;
    Micros began{0}, took{0};
    std::uint32_t rows = 0;
    std::optional<Error> error{};
  };
  Called run(std::span<const TensorView> inputs, std::span<const std::uint16_t> wanted, std::uint32_t rows) const;
  bool call_together();
  void merge(std::uint32_t rows);
  void answer(Request& request, std::span<const TensorView> outputs, const Called& by);

  const Model& model_;
  Batch& batch_;
  const sys::Clock& clock_;
  Called all_;                // of all together, or of the only one
  std::vector<Called> each_;  // by request, when that failed
  Micros merged_{0};          // how long inputs were put together
  std::uint32_t late_ = 0;
};

// All of that at once.
BatchDone run_batch(const Model& model, Batch& batch, const sys::Clock& clock);

}  // namespace falaj::infer
