// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "foundation/base/error.h"

namespace falaj::schedule {
namespace {

constexpr int kGpusPerNode = 8;
constexpr double kLoadAimedAt = 0.8;

std::vector<std::string_view> split(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find_first_of(separators, at), line.size());
    parts.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

template <class F>
void each_line(std::string_view text, F&& use) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, ++count);
    at = end + 1;
  }
}

// Days since 1970 of a date of the Gregorian calendar.
std::int64_t days(int year, int month, int day) {
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  return std::chrono::sys_days(date).time_since_epoch().count();
}

std::optional<double> moment(std::string_view text) {
  if (const auto plain = number(text)) return plain;
  const auto parts = split(text, "- :T");
  if (parts.size() != 6) return std::nullopt;
  std::array<int, 6> field{};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto value = number(parts[i]);
    if (!value) return std::nullopt;
    field[i] = static_cast<int>(*value);
  }
  return static_cast<double>(days(field[0], field[1], field[2]) * 86400 + field[3] * 3600 + field[4] * 60 + field[5]);
}

void in_order(Trace& trace) {
  std::ranges::stable_sort(trace.jobs, {}, &TraceJob::submitted);
  trace.queues = {{"all", "", 1, {}, {}, true}};
  for (TraceJob& job : trace.jobs) {
    if (job.queue.empty()) job.queue = "all";
  }
}

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;

// Every member of it: what was appended is a part of the text, too.
std::string gunzip(std::string_view bytes) {
  z_stream stream{};
  CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "zlib is there");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));  // it only reads
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::vector<char> piece(1 << 20);
  for (int state = Z_OK; state != Z_STREAM_END || stream.avail_in > 0;) {
    if (state == Z_STREAM_END) inflateReset(&stream);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END)
      throw Error(Code::invalid, "the trace is not whole: gzip ends too soon");
    out.append(piece.data(), piece.size() - stream.avail_out);
    if (out.size() > kTextBytesMax) throw Error(Code::exhausted, "the trace is more than 1 GiB of text");
  }
  return out;
}

}  // namespace

Trace read_swf(std::string_view text) {
  Trace trace;
  std::int64_t processors = 0;
  bool stated = false;
  each_line(text, [&](std::string_view line, std::size_t count) {
    if (line.starts_with(';')) {
      if (const auto at = line.find("MaxProcs:"); at != std::string_view::npos) {
        auto words = split(line.substr(at + 9), " \t");
        std::erase(words, std::string_view{});
        if (const auto most = words.empty() ? std::nullopt : number(words[0])) {
          processors = static_cast<std::int64_t>(*most);
          stated = true;
        }
      }
      return;
    }
    auto words = split(line, " \t");
    std::erase(words, std::string_view{});
    if (words.empty()) return;
    std::array<double, 18> field{};
    for (std::size_t i = 0; i < field.size(); ++i) {
      const auto value = i < words.size() ? number(words[i]) : std::nullopt;
      if (!value)
        throw Error(Code::invalid, fmt::format("line {}: column {} of 18 is not a number: {}", count, i + 1, line));
      field[i] = *value;
    }
    const double allocated = field[4] > 0 ? field[4] : field[7];
    if (field[3] < 0 || allocated <= 0) {
      ++trace.skipped;
      return;
    }
    TraceJob job;
    job.submitted = from_seconds(field[1]);
    job.ran = from_seconds(field[3]);
    job.limit = std::max(field[8] > 0 ? from_seconds(field[8]) : job.ran, job.ran);
    job.tasks = static_cast<int>(allocated);
    job.task.cpu_millis = 1000;
    job.user = std::to_string(static_cast<int>(field[11]));
    if (field[13] > 0) job.name = std::to_string(static_cast<int>(field[13]));
    if (!stated) processors = std::max<std::int64_t>(processors, job.tasks);
    trace.jobs.push_back(std::move(job));
  });
  for (TraceJob& job : trace.jobs) job.tasks = static_cast<int>(std::min<std::int64_t>(job.tasks, processors));
  Node node;
  node.name = "cluster";
  node.capacity.cpu_millis = processors * 1000;
  trace.nodes.push_back(std::move(node));
  in_order(trace);
  return trace;
}

Trace read_trace(std::string_view file, std::string_view bytes, int nodes) {
  if (bytes.size() > kTextBytesMax) throw Error(Code::exhausted, "the trace is more than 1 GiB");
  std::string text;
  if (file.ends_with(".gz")) {
    file.remove_suffix(3);
    text = gunzip(bytes);
    bytes = text;
  }
  return file.ends_with(".csv") ? read_gpu_csv(bytes, nodes) : read_swf(bytes);
}

Trace read_gpu_csv(std::string_view text, int nodes) {
  Trace trace;
  std::map<std::string, std::size_t, std::less<>> column;
  double work = 0, first = 1e300, last = 0;
  int widest = 1;
  each_line(text, [&](std::string_view line, std::size_t count) {
    const auto words = split(line, ",");
    if (count == 1) {
      for (std::size_t i = 0; i < words.size(); ++i) column.emplace(words[i], i);
      for (const char* needed : {"timestamp", "duration", "num_gpus"}) {
        if (!column.contains(needed)) throw Error(Code::invalid, fmt::format("no column {} in: {}", needed, line));
      }
      return;
    }
    const auto word = [&](std::string_view name) -> std::string_view {
      const auto found = column.find(name);
      return found == column.end() || found->second >= words.size() ? std::string_view{} : words[found->second];
    };
    const auto at = moment(word("timestamp"));
    const auto ran = number(word("duration"));
    const auto gpus = number(word("num_gpus"));
    if (!at || !ran || !gpus || *ran < 0 || *gpus < 1 || *gpus > 1e6) {
      ++trace.skipped;
      return;
    }
    TraceJob job;
    job.submitted = from_seconds(*at);
    job.ran = from_seconds(*ran);
    if (const auto limit = number(word("limit"))) job.limit = std::max(from_seconds(*limit), job.ran);
    if (const auto deadline = number(word("deadline"))) job.deadline = job.submitted + from_seconds(*deadline);
    job.tasks = static_cast<int>(*gpus);
    job.task.gpu_millis = 1000;
    job.user = std::string(word("user").empty() ? word("cluster") : word("user"));
    job.name = std::string(word("name"));
    work += *ran * *gpus;
    first = std::min(first, *at);
    last = std::max(last, *at);
    widest = std::max(widest, job.tasks);
    trace.jobs.push_back(std::move(job));
  });
  if (nodes == 0 && !trace.jobs.empty()) {
    nodes = static_cast<int>(std::ceil(work / std::max(1.0, last - first) / kLoadAimedAt / kGpusPerNode));
  }
  nodes = std::max(nodes, (widest + kGpusPerNode - 1) / kGpusPerNode);
  for (int i = 0; i < nodes; ++i) {
    Node node;
    node.name = fmt::format("gpu{:04}", i);
    for (int g = 0; g < kGpusPerNode; ++g) node.devices.push_back({std::to_string(g), "gpu"});
    trace.nodes.push_back(std::move(node));
  }
  in_order(trace);
  return trace;
}

Trace make_trace(std::uint64_t seed, std::size_t jobs, int nodes, int processors) {
  Trace trace;
  std::mt19937_64 random(seed);  // its sequence is fixed by the standard, its distributions' are not: none is used
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < nodes; ++i) {
    Node node;
    node.name = fmt::format("n{:05}", i);
    node.capacity.cpu_millis = processors * 1000;
    node.capacity.memory_bytes = static_cast<std::int64_t>(processors) << 32;
    trace.nodes.push_back(std::move(node));
  }
  struct Habit {
    double seconds, spread, crash;
    int tasks, cpus;
  };
  std::vector<Habit> habits;
  for (int i = 0; i < 100; ++i) {
    const double size = uniform();
    habits.push_back(
        {std::exp(std::log(30) + uniform() * std::log(2000)), 0.3 + uniform(), uniform() * 0.3,
         size < 0.8 ? 1
                    : 1 + static_cast<int>(std::exp(uniform() * std::log(std::min(256.0, nodes * processors / 4.0)))),
         1 + static_cast<int>(uniform() * std::min(processors, 4))});
  }
  double work = 0;
  std::vector<TraceJob> made;
  for (std::size_t i = 0; i < jobs; ++i) {
    const std::size_t user = static_cast<std::size_t>(uniform() * uniform() * 100);
    const Habit& habit = habits[user];
    TraceJob job;
    const double normal = std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
    double ran = habit.seconds * std::exp(habit.spread * normal);
    if (uniform() < habit.crash) ran = 1 + uniform() * 20;
    job.ran = from_seconds(std::min(ran, 259200.0));
    job.limit = std::max(job.ran, from_seconds(std::ceil(habit.seconds * (1 + 3 * uniform()) / 600) * 600));
    job.tasks = habit.tasks;
    job.task.cpu_millis = habit.cpus * 1000;
    job.task.memory_bytes = static_cast<std::int64_t>(habit.cpus) << 30;
    job.user = fmt::format("u{}", user);
    job.name = fmt::format("habit{}", user);
    work += static_cast<double>(job.ran.count()) / 1e6 * job.tasks * habit.cpus;
    made.push_back(std::move(job));
  }
  // They arrive over the time in which the cluster can do most of it, more by day than by night.
  const double span = work / (nodes * processors * 0.9);
  double at = 0;
  for (TraceJob& job : made) {
    const double hour = std::fmod(at / 3600, 24);
    at += -std::log(1 - uniform()) * span / static_cast<double>(jobs) / (hour > 8 && hour < 20 ? 1.5 : 0.6);
    job.submitted = from_seconds(at);
  }
  trace.jobs = std::move(made);
  in_order(trace);
  return trace;
}

}  // namespace falaj::schedule
