// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/script.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::execute::slurm {
namespace {

constexpr std::string_view kPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
constexpr std::size_t kScriptBytesMax = 1 << 20, kAttemptBytesMax = 128;

constexpr std::string_view kBatch = R"sh(
# Where Slurm signals whole process trees it would hit every command run from here: records are made by the shell alone.
stopping= code=
now() {
  at=${EPOCHREALTIME/[^0-9]/}
  [ -n "$at" ] || printf -v at '%(%s)T000000' -1
}
# A stop that comes before the tasks are there is found by them when they begin.
tell() {
  stopping=1
  : >"$here/stop"
  echo told >>"$here/status"
  scancel --quiet --signal="$1" "$SLURM_JOB_ID.0"
}
trap stopping=1 TERM
trap 'tell TERM' USR1
trap 'tell KILL' USR2
# A second job of the same attempt, submitted because the answer to the first got lost, ends here; and one that is
# forgotten.
[ -e "$here/task" ] || exit 0
now
set -C
{ printf '%s.%s\n' "$SLURM_JOB_ID" "$at" >"$here/claim"; } 2>/dev/null || exit 0
set +C

export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  address=$(scontrol --oneliner show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  MASTER_ADDR=${address:-$first}
fi
[ ! -e "$here/hosts" ] || export SLURM_HOSTFILE=$here/hosts

# srun must not be below this shell: it would take what is meant for us, and it ends the tasks at once when it is told to.
exec 3< <(
  (setsid bash -c 'srun "$@" 2>&1; echo "end $?"' run "${options[@]}" bash "$here/task" </dev/null &)
)
while :; do
  IFS= read -r line <&3 || { [ $? -gt 128 ] && continue; break; }
  case $line in
    'end '*) code=${line#end } && break ;;
    *) printf '%s\n' "$line" >>"$here/status" ;;
  esac
  # The first task that fails, or has saved its work (75), takes the others with it.
  case $line in
    'srun: Job step aborted'* | 'srun: Force Terminated'*) stopping=1 ;; # by Slurm, which has told them
    'srun: error: '*': task'*': '*)
      if [ "$tasks" -gt 1 ] && [ -z "$stopping" ]; then
        tell TERM
        (sleep "$grace" && scancel --quiet --signal=KILL "$SLURM_JOB_ID.0") &
      fi ;;
  esac
done
now
printf '%s %s\n' "${code:-255}" "$at" >"$here/end"
exit "${code:-255}"
)sh";

constexpr std::string_view kTask = R"sh(
refuse() {
  printf '%s %s\n' "$SLURM_PROCID" "$1" >"$here/refused.$SLURM_PROCID" && mv "$here/refused.$SLURM_PROCID" "$here/refused"
  exit 127
}
[ ! -e "$here/stop" ] || exit 143
)sh";

// Its parent is Slurm's daemon of the step on this node, which has waited for the task: what it knows of its children
// is all that ended on the node so far. Clock ticks are a hundredth of a second wherever Linux runs Slurm.
constexpr std::string_view kAfter = R"sh(
stat=$(<"/proc/$PPID/stat") || exit 0
read -ra fields <<<"${stat##*) }"
peak=0
while IFS=: read -r _ kinds path; do
  case ,$kinds, in
    *,memory,*) kind=cgroup file=memory.max_usage_in_bytes ;;
    ,,) kind=cgroup2 file=memory.peak ;;
    *) continue ;;
  esac
  case $path in */step_*) ;; *) continue ;; esac
  step=${path#*/step_}
  path=${path%%/step_*}/step_${step%%/*}
  while read -r _ at type options _; do
    [ "$type" = "$kind" ] && { [ "$kind" = cgroup2 ] || [[ ,$options, == *,memory,* ]]; } || continue
    [ ! -r "$at$path/$file" ] || peak=$(<"$at$path/$file")
  done </proc/self/mounts
done </proc/self/cgroup
printf '%s %s\n' $(((fields[13] + fields[14]) * 10000)) "$peak" >"$here/used.$SLURM_NODEID"
)sh";

bool is_variable_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool is_attempt_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kAttemptBytesMax && name[0] != '.' && name[0] != '-' &&
         std::ranges::all_of(name, plain);
}

bool is_node_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

bool is_plain_path(std::string_view path) {
  if (!path.starts_with('/') || path.find('\0') != path.npos) return false;
  const auto parts = split(path.substr(1), '/');
  return std::ranges::none_of(parts, [](std::string_view part) { return part.empty() || part == "." || part == ".."; });
}

bool has_nul(std::string_view text) { return text.find('\0') != text.npos; }

std::int64_t cpus_of(const Launch& launch) {
  return std::max<std::int64_t>(1, (launch.limits.cpu_millis + 999) / 1000);
}

std::int64_t gpus_per_task(const Launch& launch) {
  return std::max<std::int64_t>(launch.gpus_per_task, static_cast<std::int64_t>(launch.tasks.front().gpus.size()));
}

std::string gpus_wanted(const Launch& launch) {
  const auto count = gpus_per_task(launch);
  if (count == 0) return "";
  return launch.gpu_type.empty() ? fmt::format("{}", count) : fmt::format("{}:{}", launch.gpu_type, count);
}  // namespace

std::int64_t minutes_of(const Launch& launch, const Settings& settings) {
  auto limit = launch.time_limit;
  if (limit == Micros{0}) limit = Micros{settings.time_limit_us};
  if (limit == Micros{0}) return 0;
  // We stop it on time ourselves. Slurm's limit is for when we are not there, so it leaves room for our grace.
  return std::chrono::ceil<std::chrono::minutes>(limit + launch.grace).count() + 1;
}

void check_environment(const Launch& launch, std::vector<Fault>& faults) {
  static const std::set<std::string_view> kOfTheShell{"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"};
  for (const auto& [name, value] : launch.environment) {
    const auto where = fmt::format("environment.{}", name.substr(0, 80));
    if (!is_variable_name(name)) faults.push_back({where, "is no name a shell can export"});
    if (kOfTheShell.contains(name)) faults.push_back({where, "belongs to the shell"});
    if (has_nul(value)) faults.push_back({where, "holds a NUL"});
  }
}

void check_tasks(const Launch& launch, std::vector<Fault>& faults) {
  if (launch.tasks.empty()) faults.push_back({"tasks", "must not be empty"});
  std::size_t named = 0;
  for (std::size_t i = 0; i < launch.tasks.size(); ++i) {
    if (launch.tasks[i].rank != static_cast<int>(i)) faults.push_back({"tasks", "ranks must count from 0"});
    const auto& node = launch.tasks[i].node;
    named += node.empty() ? 0 : 1;
    if (!node.empty() && !is_node_name(node)) faults.push_back({"tasks", "no node is called that"});
  }
  if (named != 0 && named != launch.tasks.size()) faults.push_back({"tasks", "either all name a node or none does"});
}

}  // namespace

std::string log_name(int rank) { return fmt::format("rank.{}.log", rank); }

std::string comment_of(std::string_view directory) { return fmt::format("falaj {}", directory); }

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::vector<Fault> faults_of(const Launch& launch, const Settings& settings) {
  std::vector<Fault> faults;
  if (!is_attempt_name(launch.attempt)) faults.push_back({"attempt", "must be plain letters, digits, '.', '_' or '-'"});
  if (launch.command.empty() || launch.command.front().empty()) faults.push_back({"command", "must not be empty"});
  for (const auto& word : launch.command)
    if (has_nul(word)) faults.push_back({"command", "holds a NUL"});
  if (!launch.image.empty())
    faults.push_back({"image", "is not supported on Slurm: use what the nodes have installed"});
  if (!is_plain_path(launch.work_directory)) faults.push_back({"work_directory", "must be a plain absolute path"});
  if (!launch.checkpoint_directory.empty() && !is_plain_path(launch.checkpoint_directory))
    faults.push_back({"checkpoint_directory", "must be a plain absolute path"});
  const auto reached = settings.isolation == "contained" ? Isolation::contained : Isolation::none;
  if (launch.isolation_min > reached)
    faults.push_back({"isolation_min", fmt::format("wants {}, but this cluster gives {}", name_of(launch.isolation_min),
                                                   name_of(reached))});
  if (launch.spares > 0)
    faults.push_back({"spares", "are not supported on Slurm: there the whole gang starts again when a task is lost"});
  check_environment(launch, faults);
  check_tasks(launch, faults);
  std::size_t bytes = 0;
  for (const auto& word : launch.command) bytes += word.size();
  for (const auto& [name, value] : launch.environment) bytes += name.size() + value.size();
  if (bytes > kScriptBytesMax) faults.push_back({"command", "is, with the environment, longer than 1 MiB"});
  return faults;
}

std::string batch_script(const Launch& launch, const std::string& directory) {
  std::string log = directory + "/" + "rank.%t.log";
  std::vector<std::string> options{fmt::format("--ntasks={}", launch.tasks.size()),
                                   fmt::format("--cpus-per-task={}", cpus_of(launch)),
                                   "--kill-on-bad-exit=0",
                                   "--wait=0",
                                   "--input=none",
                                   "--open-mode=append",
                                   "--export=ALL",
                                   "--output=" + log,
                                   "--task-epilog=" + directory + "/" + std::string(kAfterScript),
                                   "--error=" + directory + "/stepd.log"};  // Slurm's own words; see task_script
  // Without their type, which the job has been given already: with it Slurm 22.05 shows a task none.
  if (const auto gpus = gpus_per_task(launch); gpus > 0) options.push_back(fmt::format("--gpus-per-task={}", gpus));
  if (!launch.tasks.front().node.empty()) options.push_back("--distribution=arbitrary");
  std::string out = "#!/bin/bash\n";
  out += fmt::format("export PATH={} SLURM_EXPORT_ENV=ALL\nunset SLURM_JWT\n", kPath);
  out += fmt::format("here={}\ntasks={}\ngrace={:.3f}\noptions=(", shell_quoted(directory), launch.tasks.size(),
                     static_cast<double>(launch.grace.count()) / 1e6);
  for (const auto& option : options) out += shell_quoted(option) + " ";
  out.back() = ')';
  return out + std::string(kBatch);
}

std::string task_script(const Launch& launch, const std::string& directory) {
  std::string out = fmt::format("here={}\n", shell_quoted(directory)) + std::string(kTask);
  out +=
      fmt::format("cd -- {} || refuse 'the work directory cannot be entered'\n", shell_quoted(launch.work_directory));
  out += "exec 2>&1\nunset SLURM_EXPORT_ENV SLURM_HOSTFILE OLDPWD HOME USER LOGNAME LC_ALL\n";
  const bool slurm_shows_gpus = gpus_per_task(launch) > 0;
  for (const auto& [name, value] : launch.environment) {
    if (name == "CUDA_VISIBLE_DEVICES" && slurm_shows_gpus) continue;
    if (name == "MASTER_ADDR" || name == "MASTER_PORT") continue;
    out += fmt::format("export {}={}\n", name, shell_quoted(value));
  }
  out += "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS\n";
  const auto program = shell_quoted(launch.command.front());
  const auto refuse =
      fmt::format("refuse {}\n", shell_quoted("the command cannot be run: " + launch.command.front().substr(0, 200)));
  // Looked for first, because the shell's own complaint would be in the log.
  out += fmt::format("type -P -- {} >/dev/null || {}shopt -s execfail\nexec --", program, refuse);
  for (const auto& word : launch.command) out += " " + shell_quoted(word);
  out += "\n" + refuse;
  return out;
}

std::string after_script(const std::string& directory) {
  return fmt::format("#!/bin/bash\nhere={}\n", shell_quoted(directory)) + std::string(kAfter);
}

std::string hosts_file(const Launch& launch) {
  std::string out;
  for (const auto& task : launch.tasks)
    if (!task.node.empty()) out += task.node + "\n";
  return out;
}

Submission submission_of(const Launch& launch, const Settings& settings, const std::string& directory, Micros now) {
  Submission s;
  s.name = launch.attempt;
  s.comment = comment_of(directory);
  s.script = batch_script(launch, directory);
  s.script_file = directory + "/" + std::string(kBatchScript);
  s.directory = directory;
  s.output = directory + "/batch.log";
  s.environment = {{"PATH", std::string(kPath)}};
  const auto mapped = settings.partitions.find(launch.queue);
  s.partition = mapped == settings.partitions.end() ? settings.partition : mapped->second;
  s.account = settings.account;
  s.qos = settings.qos;
  s.tasks = static_cast<std::int64_t>(launch.tasks.size());
  s.cpus_per_task = cpus_of(launch);
  if (launch.limits.memory_bytes > 0) {
    const auto per_cpu = (std::int64_t{1} << 20) * s.cpus_per_task;
    s.memory_mib_per_cpu = (launch.limits.memory_bytes + per_cpu - 1) / per_cpu;
  }
  s.gpus_per_task = gpus_wanted(launch);
  std::map<std::string, std::int64_t> by_node;
  for (const auto& task : launch.tasks)
    if (!task.node.empty()) s.tasks_per_node = std::max(s.tasks_per_node, ++by_node[task.node]);
  for (const auto& [node, count] : by_node) s.nodes.push_back(node);
  s.time_limit_minutes = minutes_of(launch, settings);
  // We keep the deadline ourselves. Slurm removes what might not be done by its own, however long it really takes, so
  // its deadline leaves room for the whole limit: it is for when we are not there.
  if (launch.deadline && s.time_limit_minutes > 0) {
    const auto left = std::max(*launch.deadline - now, Micros{0}) + std::chrono::minutes(s.time_limit_minutes + 1);
    s.deadline_seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
  }
  // Only an operator may raise a job's priority, anybody may lower it.
  s.nice = std::clamp<std::int64_t>(settings.priority_highest - launch.priority, 0, 1'000'000);
  return s;
}

}  // namespace falaj::execute::slurm
