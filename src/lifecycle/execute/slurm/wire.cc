// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/wire.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::execute::slurm {
namespace {

std::string text_at(const json::object& in, std::string_view key) {
  const auto* value = in.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::int64_t number_at(const json::object& in, std::string_view key) {
  const auto* value = in.if_contains(key);
  if (!value || !value->is_number()) return 0;
  boost::system::error_code fault;
  const auto number = value->to_number<std::int64_t>(fault);
  return fault ? 0 : number;
}

const json::array& array_at(const json::value& answer, std::string_view key) {
  const auto* object = answer.if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  if (!found || !found->is_array())
    throw Error(Code::unavailable, fmt::format("Slurm's answer holds no list of {}", key));
  return found->get_array();
}

// What a node is doing when it can take no job, among its state and flags.
bool is_up(const json::object& node) {
  const auto bad = [](std::string_view word) {
    const auto state = lower(word);
    return state.starts_with("down") || state == "drain" || state == "fail" || state == "failing" || state == "error" ||
           state == "not_responding" || state == "future" || state == "invalid" || state == "unknown" ||
           state == "maintenance" || state == "powered_down";
  };
  if (bad(text_at(node, "state"))) return false;
  const auto* flags = node.if_contains("state_flags");
  if (!flags || !flags->is_array()) return true;
  return std::ranges::none_of(flags->get_array(), [&](const json::value& flag) {
    return flag.is_string() && bad(std::string_view(flag.get_string()));
  });
}

Node node_of(const json::object& in, const std::string& zone, Isolation isolation) {
  Node node;
  node.name = text_at(in, "name");
  node.zone = zone;
  node.cpu_millis = number_at(in, "cpus") * 1000;
  node.memory_bytes = number_at(in, "real_memory") << 20;
  node.disk_bytes = number_at(in, "temporary_disk") << 20;
  node.isolation_max = isolation;
  node.up = is_up(in);
  const auto features = text_at(in, "features");
  for (const auto feature : split(features, ','))
    if (!feature.empty()) node.labels[fmt::format("slurm.feature/{}", feature)] = "true";
  if (const auto* partitions = in.if_contains("partitions"); partitions && partitions->is_array())
    for (const auto& partition : partitions->get_array())
      if (partition.is_string())
        node.labels[fmt::format("slurm.partition/{}", std::string_view(partition.get_string()))] = "true";
  for (const auto& [type, count] : gpus_of(text_at(in, "gres")))
    for (std::int64_t i = 0; i < count; ++i)
      node.gpus.push_back({.id = fmt::format("{}", node.gpus.size()), .type = type, .memory_bytes = 0});
  return node;
}

}  // namespace

std::string submit_body(const Submission& s) {
  json::object job{{"name", s.name},
                   {"comment", s.comment},
                   {"current_working_directory", s.directory},
                   {"standard_output", s.output},
                   {"tasks", s.tasks},
                   {"cpus_per_task", s.cpus_per_task},
                   {"nice", s.nice},
                   {"no_requeue", true}};  // `requeue: false` would mean the opposite
  const auto say = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) job[key] = value;
  };
  say("partition", s.partition);
  say("account", s.account);
  say("qos", s.qos);
  say("gpus_per_task", s.gpus_per_task);
  if (s.memory_mib_per_cpu > 0) job["memory_per_cpu"] = s.memory_mib_per_cpu;
  if (s.tasks_per_node > 0) job["tasks_per_node"] = s.tasks_per_node;
  if (s.time_limit_minutes > 0) job["time_limit"] = s.time_limit_minutes;
  if (s.deadline_seconds) job["deadline"] = fmt::format("now+{}seconds", *s.deadline_seconds);
  if (!s.nodes.empty()) {
    job["nodes"] = s.nodes.size();
    job["nodelist"] = join(s.nodes, ",");
  }
  auto& environment = job["environment"].emplace_object();
  for (const auto& [name, value] : s.environment) environment[name] = value;
  return json::serialize(json::object{{"script", s.script}, {"job", std::move(job)}});
}

std::optional<Refusal> refusal_of(const json::value& answer) {
  const auto* object = answer.if_object();
  const auto* errors = object ? object->if_contains("errors") : nullptr;
  if (!errors || !errors->is_array() || errors->get_array().empty()) return std::nullopt;
  const auto* first = errors->get_array().front().if_object();
  if (!first) return Refusal{kUnspecified, "no reason given"};
  Refusal out{0, text_at(*first, "error")};
  for (const auto* key : {"error_number", "error_code", "errno"})  // each endpoint has its own word
    if (first->contains(key)) out.number = number_at(*first, key);
  if (out.text.empty()) out.text = text_at(*first, "description");
  return out;
}

Error error_of(std::string_view doing, const Refusal& refusal) {
  // Below 2000 are failures to reach or understand each other, and the system's own (EAGAIN ...).
  const bool later = refusal.number < 2000 || refusal.number == kNotNow;
  return {later ? Code::unavailable : Code::invalid,
          fmt::format("{}: Slurm says: {} ({})", doing, refusal.text, refusal.number)};
}

std::vector<Job> jobs_of(const json::value& answer) {
  std::vector<Job> out;
  for (const auto& item : array_at(answer, "jobs")) {
    const auto* in = item.if_object();
    if (!in) continue;
    Job job;
    job.id = number_at(*in, "job_id");
    job.name = text_at(*in, "name");
    job.comment = text_at(*in, "comment");
    job.state = text_at(*in, "job_state");
    job.reason = text_at(*in, "state_reason");
    job.exit_status = static_cast<int>(number_at(*in, "exit_code"));
    job.start_s = number_at(*in, "start_time");
    job.end_s = number_at(*in, "end_time");
    out.push_back(std::move(job));
  }
  return out;
}

std::vector<Node> nodes_of(const json::value& answer, const std::string& zone, Isolation isolation) {
  std::vector<Node> out;
  for (const auto& item : array_at(answer, "nodes"))
    if (const auto* in = item.if_object()) out.push_back(node_of(*in, zone, isolation));
  return out;
}

std::vector<std::pair<std::string, std::int64_t>> gpus_of(std::string_view gres) {
  std::vector<std::pair<std::string, std::int64_t>> out;
  int depth = 0;
  std::string flat;  // without "(S:0-1,3)", whose commas separate nothing
  for (const char c : gres) {
    if (c == '(') ++depth;
    if (depth == 0) flat += c;
    if (c == ')') --depth;
  }
  for (const auto item : split(flat, ',')) {
    const auto parts = split(item, ':');
    if (parts[0] != "gpu") continue;
    if (parts.size() == 1) {
      out.emplace_back("", 1);
      continue;
    }
    const auto count = parse_int(parts.back());
    const std::string type(parts.size() > 2 || !count ? parts[1] : "");
    out.emplace_back(type, std::clamp<std::int64_t>(count.value_or(1), 0, 1024));
  }
  return out;
}

}  // namespace falaj::execute::slurm
