// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an executor and its keeper say to each other over their socket, and what the keeper's journal holds. A frame is
// a u32 length and so many bytes; its first byte says what it is. Everything that is read is bounded and checked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

inline constexpr std::uint32_t kWireVersion = 1;
inline constexpr std::size_t kFrameBytesMax = std::size_t{4} << 20;

// How this node treats its jobs, told with each launch, so that a keeper holds no settings of its own.
struct Rules {
  std::string node;                               // the host name that tasks see
  Isolation isolation_max = Isolation::isolated;  // never goes further, even where it could
  std::int64_t log_bytes_max = 64 << 20;          // of each task; older output is dropped
  std::vector<std::string> devices;               // nodes that the tasks' gpus need
  std::vector<std::string> hidden;                // no job may be given these, or anything that holds them
};

struct Order {
  Launch launch;
  Rules rules;
};

// What the keeper found it can do on this machine, and why not more.
struct Abilities {
  int keeper_pid = 0;
  Isolation isolation_max = Isolation::none;
  bool namespaces = false;  // used where they are there, also where the level is lower for want of groups
  bool groups = false;
  std::string lacking;
};

enum class Ask : std::uint8_t { hello = 1, start, stop, forget, use };
struct Question {
  Ask ask = Ask::hello;
  std::uint64_t id = 0;   // repeated in the answer
  Order order{};          // start
  std::string attempt{};  // stop, forget, use
  Micros grace{0};        // stop
};

// What the keeper sends: `answer` to one question; the others to everybody who said hello. The answer to hello comes
// after a report of every attempt, so whoever has it knows them all. Before the answer to use comes what it is about.
enum class Told : std::uint8_t { answer = 1, report, forgotten, used };
struct Statement {
  Told told = Told::answer;
  std::uint64_t id = 0;            // answer
  std::optional<Error> refused{};  // answer
  Abilities abilities{};           // answer to hello
  Report report{};
  std::string attempt{};  // forgotten, used
  Used used{};
};

// With their length in front. Throws exhausted when longer than kFrameBytesMax.
Bytes encode(const Question& question);
Bytes encode(const Statement& statement);
// One frame without its length. Throws corrupt.
Question decode_question(BytesView frame);
Statement decode_statement(BytesView frame);

void write_report(ByteWriter& out, const Report& report);
Report read_report(ByteReader& in);

// Collects bytes as they come and gives whole frames.
class Frames {
 public:
  void add(BytesView bytes) { pending_.insert(pending_.end(), bytes.begin(), bytes.end()); }
  std::optional<BytesView> next();  // valid until the next call of either; throws corrupt when too long

 private:
  Bytes pending_;
  std::size_t taken_ = 0;  // of pending_, by frames that were given
};

}  // namespace falaj::execute::local
