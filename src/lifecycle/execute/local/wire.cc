// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/wire.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::execute::local {
namespace {

void put_signed(ByteWriter& out, std::int64_t v) { out.u64(static_cast<std::uint64_t>(v)); }
std::int64_t take_signed(ByteReader& in) { return static_cast<std::int64_t>(in.u64()); }
void put_micros(ByteWriter& out, Micros v) { put_signed(out, v.count()); }
Micros take_micros(ByteReader& in) { return Micros(take_signed(in)); }
int take_int(ByteReader& in) { return static_cast<int>(in.u32()); }

template <class E>
void put_enum(ByteWriter& out, E v) {
  out.u8(static_cast<std::uint8_t>(v));
}
template <class E>
E take_enum(ByteReader& in, E first, E last) {
  const auto v = in.u8();
  if (v < static_cast<std::uint8_t>(first) || v > static_cast<std::uint8_t>(last))
    throw Error(Code::corrupt, fmt::format("reading a message of the keeper: unknown value: {}", v));
  return static_cast<E>(v);
}
bool take_bool(ByteReader& in) { return take_enum(in, std::uint8_t{0}, std::uint8_t{1}) != 0; }

// Each entry takes at least one byte, so what is left bounds how many there can be.
template <class F>
void take_each(ByteReader& in, F take) {
  const auto count = in.u32();
  if (count > in.left()) throw Error(Code::corrupt, "reading a message of the keeper: more entries than bytes");
  for (std::uint32_t i = 0; i < count; ++i) take();
}

void put_texts(ByteWriter& out, const std::vector<std::string>& texts) {
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const auto& text : texts) out.text(text);
}
std::vector<std::string> take_texts(ByteReader& in) {
  std::vector<std::string> out;
  take_each(in, [&] { out.push_back(in.text()); });
  return out;
}

void put_tasks(ByteWriter& out, const std::vector<Task>& tasks) {
  out.u32(static_cast<std::uint32_t>(tasks.size()));
  for (const auto& task : tasks) {
    out.u32(static_cast<std::uint32_t>(task.rank));
    out.text(task.node);
    out.u32(static_cast<std::uint32_t>(task.cpus.size()));
    for (const int cpu : task.cpus) out.u32(static_cast<std::uint32_t>(cpu));
    put_texts(out, task.gpus);
  }
}
std::vector<Task> take_tasks(ByteReader& in) {
  std::vector<Task> out;
  take_each(in, [&] {
    Task task;
    task.rank = take_int(in);
    task.node = in.text();
    take_each(in, [&] { task.cpus.push_back(take_int(in)); });
    task.gpus = take_texts(in);
    out.push_back(std::move(task));
  });
  return out;
}

// What an executor that queues itself would need (queue, priority, deadline) is not sent.
void put_launch(ByteWriter& out, const Launch& launch) {
  out.text(launch.attempt);
  put_texts(out, launch.command);
  out.u32(static_cast<std::uint32_t>(launch.environment.size()));
  for (const auto& [key, value] : launch.environment) out.text(key), out.text(value);
  out.text(launch.image);
  out.text(launch.work_directory);
  out.text(launch.checkpoint_directory);
  out.u32(static_cast<std::uint32_t>(launch.mounts.size()));
  for (const auto& mount : launch.mounts) out.text(mount.path), out.u8(mount.writable);
  put_tasks(out, launch.tasks);
  put_signed(out, launch.limits.cpu_millis);
  put_signed(out, launch.limits.memory_bytes);
  put_signed(out, launch.limits.disk_bytes);
  put_signed(out, launch.limits.processes);
  put_enum(out, launch.isolation_min);
  put_enum(out, launch.network);
  put_micros(out, launch.time_limit);
  put_micros(out, launch.grace);
}
Launch take_launch(ByteReader& in) {
  Launch launch;
  launch.attempt = in.text();
  launch.command = take_texts(in);
  take_each(in, [&] {
    auto key = in.text();
    launch.environment[std::move(key)] = in.text();
  });
  launch.image = in.text();
  launch.work_directory = in.text();
  launch.checkpoint_directory = in.text();
  take_each(in, [&] {
    Mount mount;
    mount.path = in.text();
    mount.writable = take_bool(in);
    launch.mounts.push_back(std::move(mount));
  });
  launch.tasks = take_tasks(in);
  launch.limits.cpu_millis = take_signed(in);
  launch.limits.memory_bytes = take_signed(in);
  launch.limits.disk_bytes = take_signed(in);
  launch.limits.processes = take_signed(in);
  launch.isolation_min = take_enum(in, Isolation::none, Isolation::isolated);
  launch.network = take_enum(in, Network::none, Network::host);
  launch.time_limit = take_micros(in);
  launch.grace = take_micros(in);
  return launch;
}

void put_order(ByteWriter& out, const Order& order) {
  put_launch(out, order.launch);
  out.text(order.rules.node);
  put_enum(out, order.rules.isolation_max);
  put_signed(out, order.rules.log_bytes_max);
  put_texts(out, order.rules.devices);
  put_texts(out, order.rules.hidden);
  if (order.launch.spares > 0) out.u32(static_cast<std::uint32_t>(order.launch.spares));  // younger than version 1
}
Order take_order(ByteReader& in) {
  Order order;
  order.launch = take_launch(in);
  order.rules.node = in.text();
  order.rules.isolation_max = take_enum(in, Isolation::none, Isolation::isolated);
  order.rules.log_bytes_max = take_signed(in);
  order.rules.devices = take_texts(in);
  order.rules.hidden = take_texts(in);
  if (in.left() == 0) return order;
  const auto spares = in.u32();
  if (spares == 0 || spares >= order.launch.tasks.size())
    throw Error(Code::corrupt, "reading a message to the keeper: its spare tasks");
  order.launch.spares = static_cast<int>(spares);
  return order;
}

Bytes with_length(const Bytes& frame) {
  if (frame.size() > kFrameBytesMax)
    throw Error(Code::exhausted, fmt::format("telling the keeper: longer than {} bytes", kFrameBytesMax));
  ByteWriter out;
  out.blob(frame);
  return out.take();
}

}  // namespace

void write_report(ByteWriter& out, const Report& report) {
  out.text(report.attempt);
  put_enum(out, report.phase);
  put_micros(out, report.started);
  put_enum(out, report.isolation);
  out.text(report.external_id);
  out.u8(report.ending.has_value());
  if (!report.ending) return;
  const Ending& ending = *report.ending;
  put_enum(out, ending.reason);
  out.u32(static_cast<std::uint32_t>(ending.exit_code));
  out.u32(static_cast<std::uint32_t>(ending.signal));
  out.u32(static_cast<std::uint32_t>(ending.rank));
  out.text(ending.message);
  put_micros(out, ending.at);
  put_micros(out, ending.used.cpu);
  put_signed(out, ending.used.memory_peak_bytes);
}

Report read_report(ByteReader& in) {
  Report report;
  report.attempt = in.text();
  report.phase = take_enum(in, Phase::starting, Phase::ended);
  report.started = take_micros(in);
  report.isolation = take_enum(in, Isolation::none, Isolation::isolated);
  report.external_id = in.text();
  if (!take_bool(in)) return report;
  Ending& ending = report.ending.emplace();
  ending.reason = take_enum(in, Reason::finished, Reason::not_started);
  ending.exit_code = take_int(in);
  ending.signal = take_int(in);
  ending.rank = take_int(in);
  ending.message = in.text();
  ending.at = take_micros(in);
  ending.used.cpu = take_micros(in);
  ending.used.memory_peak_bytes = take_signed(in);
  return report;
}

Bytes encode(const Question& question) {
  ByteWriter out;
  put_enum(out, question.ask);
  out.u64(question.id);
  switch (question.ask) {
    case Ask::hello:
      out.u32(kWireVersion);
      break;
    case Ask::start:
      put_order(out, question.order);
      break;
    case Ask::stop:
      out.text(question.attempt), put_micros(out, question.grace);
      break;
    case Ask::forget:
    case Ask::use:
      out.text(question.attempt);
      break;
  }
  return with_length(out.bytes());
}

Question decode_question(BytesView frame) {
  ByteReader in(frame, kFrameBytesMax);
  Question question;
  question.ask = take_enum(in, Ask::hello, Ask::use);
  question.id = in.u64();
  switch (question.ask) {
    case Ask::hello:
      if (in.u32() != kWireVersion) throw Error(Code::corrupt, "reading a message to the keeper: of another version");
      break;
    case Ask::start:
      question.order = take_order(in);
      break;
    case Ask::stop:
      question.attempt = in.text();
      question.grace = take_micros(in);
      break;
    case Ask::forget:
    case Ask::use:
      question.attempt = in.text();
      break;
  }
  in.expect_end();
  return question;
}

Bytes encode(const Statement& statement) {
  ByteWriter out;
  put_enum(out, statement.told);
  switch (statement.told) {
    case Told::answer:
      out.u64(statement.id);
      out.u8(statement.refused.has_value());
      if (statement.refused) {
        put_enum(out, statement.refused->code());
        out.text(statement.refused->what());
      }
      out.u32(static_cast<std::uint32_t>(statement.abilities.keeper_pid));
      put_enum(out, statement.abilities.isolation_max);
      out.u8(statement.abilities.namespaces);
      out.u8(statement.abilities.groups);
      out.text(statement.abilities.lacking);
      break;
    case Told::report:
      write_report(out, statement.report);
      break;
    case Told::forgotten:
      out.text(statement.attempt);
      break;
    case Told::used:
      out.text(statement.attempt);
      put_micros(out, statement.used.cpu);
      put_signed(out, statement.used.memory_peak_bytes);
      break;
  }
  return with_length(out.bytes());
}

Statement decode_statement(BytesView frame) {
  ByteReader in(frame, kFrameBytesMax);
  Statement statement;
  statement.told = take_enum(in, Told::answer, Told::used);
  switch (statement.told) {
    case Told::answer:
      statement.id = in.u64();
      if (take_bool(in)) {
        const Code code = take_enum(in, Code::invalid, Code::internal);
        statement.refused.emplace(code, in.text());
      }
      statement.abilities.keeper_pid = take_int(in);
      statement.abilities.isolation_max = take_enum(in, Isolation::none, Isolation::isolated);
      statement.abilities.namespaces = take_bool(in);
      statement.abilities.groups = take_bool(in);
      statement.abilities.lacking = in.text();
      break;
    case Told::report:
      statement.report = read_report(in);
      break;
    case Told::forgotten:
      statement.attempt = in.text();
      break;
    case Told::used:
      statement.attempt = in.text();
      statement.used.cpu = take_micros(in);
      statement.used.memory_peak_bytes = take_signed(in);
      break;
  }
  in.expect_end();
  return statement;
}

std::optional<BytesView> Frames::next() {
  const BytesView left = BytesView(pending_).subspan(taken_);
  if (left.size() >= 4) {
    const std::size_t length = ByteReader(left).u32();
    if (length > kFrameBytesMax) throw Error(Code::corrupt, "reading a message of the keeper: too long");
    if (left.size() - 4 >= length) {
      taken_ += 4 + length;
      return left.subspan(4, length);
    }
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  return std::nullopt;
}

}  // namespace falaj::execute::local
