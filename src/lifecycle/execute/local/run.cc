// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/run.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kOutputAtOnce = 64 << 10;
constexpr Micros kKillAgain = std::chrono::seconds(2);
constexpr int kPortInside = 29'500;
constexpr const char* kPath = "/usr/local/bin:/usr/bin:/bin";
// Without a view of its own, a task may read these and nothing else of the host. It is the keeper's user then.
constexpr std::string_view kReadable =
    "/usr /bin /sbin /lib /lib32 /lib64 /opt /proc /sys/devices/system "
    "/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/alternatives /etc/ssl/certs /etc/ssl/openssl.cnf "
    "/etc/fonts "
    "/etc/passwd /etc/group /etc/hosts /etc/host.conf /etc/resolv.conf /etc/nsswitch.conf /etc/gai.conf /etc/services "
    "/etc/protocols /etc/localtime /etc/timezone /etc/os-release /etc/mime.types";

[[noreturn]] void fail_run(std::string_view doing) {
  throw Error(Code::unavailable, fmt::format("{}: {}", doing, std::generic_category().message(errno)));
}

void make_directories(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      throw Error(Code::unavailable,
                  fmt::format("making the directory {}: {}", path, std::generic_category().message(errno)));
    if (at == std::string::npos) return;
  }
}

// Free now; somebody else may take it before the task does, as with any port that is handed on by number.
int free_port() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail_run("finding a port for its tasks");
  return ntohs(address.sin_port);
}

}  // namespace

Run::Run(Loop& loop, const sys::Clock& clock, Machine& machine, Images& images, std::string log_directory, Calls calls)
    : loop_(loop),
      clock_(clock),
      machine_(machine),
      images_(images),
      log_directory_(std::move(log_directory)),
      calls_(std::move(calls)) {}

Run::~Run() {
  images_.cancel(this);
  for (const auto& timer : {time_limit_, kill_})
    if (timer) loop_.cancel(*timer);
  for (const auto& task : tasks_) loop_.unwatch(task.output.get());
  for (const auto* descriptor : {&started_.control, &started_.process})
    if (*descriptor) loop_.unwatch(descriptor->get());
}

Isolation Run::level_of(const Order& order) const {
  const Isolation possible = std::min(machine_.isolation_max(), order.rules.isolation_max);
  // The network of the host is not its own.
  const bool shares = order.launch.network == Network::host;
  return shares ? std::min(possible, Isolation::contained) : possible;
}

void Run::start(const Order& order) {
  level_ = level_of(order);
  own_view_ = machine_.has_namespaces() && order.rules.isolation_max == Isolation::isolated;
  grace_ = order.launch.grace;
  spares_ = order.launch.spares;
  try {
    if (level_ < order.launch.isolation_min) {
      const auto& lacking = machine_.lacking();
      throw Error(Code::unavailable,
                  fmt::format("isolation here is {} at most{}, and {} is asked for{}", name_of(level_),
                              order.launch.network == Network::host ? " with the network of the host" : "",
                              name_of(order.launch.isolation_min), lacking.empty() ? "" : ": " + lacking));
    }
    if (::mkdir(log_directory_.c_str(), 0700) != 0 && errno != EEXIST) fail_run("the directory of its logs");
    if (order.launch.image.empty()) return launch(order);
  } catch (const Error& error) {
    return give_up(error);
  }
  images_.want(order.launch.image, this, [this, order](const std::string& root, const std::string& problem) {
    Order with_root = order;
    with_root.launch.image = root;
    try {
      if (!problem.empty()) throw Error(Code::unavailable, problem);
      launch(with_root);
    } catch (const Error& error) {
      give_up(error);
    }
  });
}

void Run::give_up(const Error& error) {
  if (started_.process) signal_init(SIGKILL);
  finish(not_started(error.what()));
}

void Run::show(const Mount& mount, AttemptStart& start) {
  if (own_view_) {
    start.trees.push_back(machine_.view().open(mount.path, mount.writable, machine_.identity()));
    machine_.view().make_room(start.trees.back());
  }
  (mount.writable ? start.writable : start.readable).push_back(mount.path);
}

void Run::prepare_view(const Order& order, AttemptStart& start) {
  const Launch& launch = order.launch;
  if (!launch.image.empty() && !own_view_)
    throw Error(Code::unavailable, "an image needs namespaces, which there are none of here");
  if (!own_view_ && landlock_version() == 0)
    throw Error(Code::unavailable, "neither namespaces nor Landlock keep it from the files of others here");
  const Identity nobody;  // an image's files stay whose they are
  if (!launch.image.empty()) start.image = machine_.view().open(launch.image, false, nobody);
  std::vector<Mount> mounts = launch.mounts;
  for (const auto& own : {launch.work_directory, launch.checkpoint_directory}) {
    if (own.empty()) continue;
    make_directories(own);
    mounts.push_back({own, true});
  }
  // What is inside another comes after it.
  std::stable_sort(mounts.begin(), mounts.end(),
                   [](const Mount& a, const Mount& b) { return a.path.size() < b.path.size(); });
  for (const auto& mount : mounts) show(mount, start);
  for (const auto& device : order.rules.devices)
    if (own_view_) show({device, true}, start);
  start.identity = &machine_.identity();
  if (own_view_) {
    start.view = &machine_.view();
    start.readable = {"/"};
    start.writable.insert(start.writable.end(), {"/tmp", "/dev/shm"});
  } else {
    for (const auto path : split(kReadable, ' ')) start.readable.emplace_back(path);
  }
}

void Run::prepare_tasks(const Order& order, AttemptStart& start) {
  const Launch& launch = order.launch;
  const int port = start.network >= 0 ? kPortInside : free_port();
  Cgroups* cgroups = level_ >= Isolation::contained ? machine_.cgroups() : nullptr;
  start.grouped = cgroups != nullptr;
  auto tasks = launch.tasks;
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.rank < b.rank; });
  for (const Task& task : tasks) {
    TaskRun run;
    run.rank = task.rank;
    run.log = std::make_unique<TaskLog>(log_directory_, task.rank, order.rules.log_bytes_max);
    TaskStart& begins = start.tasks.emplace_back();
    begins.rank = task.rank;
    auto environment = launch.environment;
    if (!own_view_) environment.try_emplace("TMPDIR", launch.work_directory);  // it has no /tmp of its own
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(task.rank);
    environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(tasks.size());
    environment["MASTER_ADDR"] = "127.0.0.1";
    environment["MASTER_PORT"] = std::to_string(port);
    environment["CUDA_VISIBLE_DEVICES"] = join(task.gpus, ",");  // none: sees none
    for (const auto& [key, value] : environment) begins.environment.push_back(key + "=" + value);
    if (cgroups) {
      run.group = cgroups->make(launch.limits, task.cpus);
      begins.doors = run.group->doors();
    }
    if (!cgroups || !cgroups->pins()) begins.cpus = task.cpus;
    tasks_.push_back(std::move(run));
  }
}

void Run::launch(const Order& order) {
  AttemptStart start;
  start.command = order.launch.command;
  const auto path = order.launch.environment.find("PATH");
  start.path = path == order.launch.environment.end() ? kPath : path->second;
  start.work_directory = order.launch.work_directory;
  start.limits = order.launch.limits;
  start.open_files = machine_.open_files();
  prepare_view(order, start);
  if (order.launch.network == Network::none && start.view) {
    network_ = machine_.networks().take();
    start.network = network_.get();
  }
  const bool has_network = start.view || order.launch.network == Network::host;
  if (!has_network && order.launch.tasks.size() > 1)
    throw Error(Code::unavailable,
                "tasks that talk to each other need a network of their own, which this machine refuses");
  start.filter = &machine_.filter(has_network ? CallFilter::Sockets::any : CallFilter::Sockets::local_only);
  prepare_tasks(order, start);
  std::vector<sys::Descriptor> outputs;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_run("a pipe for its output");
    tasks_[i].output = sys::Descriptor(ends[0]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    outputs.emplace_back(ends[1]);
    start.tasks[i].output = ends[1];
  }
  started_ = local::start(start);
  for (auto& task : tasks_) {
    if (task.group) task.group->close_doors();
    loop_.watch(task.output.get(), EPOLLIN, [this, &task](std::uint32_t) { read_output(task, false); });
  }
  loop_.watch(started_.control.get(), EPOLLIN, [this](std::uint32_t) { hear(); });
  loop_.watch(started_.process.get(), EPOLLIN, [this](std::uint32_t) { init_died(); });
  if (order.launch.limits.disk_bytes > 0) watch_disk(order.launch);
  if (order.launch.time_limit > Micros(0))
    time_limit_ = loop_.after(order.launch.time_limit, [this] { stop(grace_, Cause::time_limit); });
}

void Run::watch_disk(const Launch& launch) {
  // Each task has a limit; the directory is of all of them.
  const auto bytes_max = launch.limits.disk_bytes * static_cast<std::int64_t>(tasks_.size());
  disk_.emplace(loop_, clock_, launch.work_directory, bytes_max,
                DiskWatch::Calls{.processes =
                                     [this] {
                                       std::vector<pid_t> all;
                                       for (const auto& task : tasks_)
                                         if (task.group)
                                           for (const pid_t pid : task.group->members()) all.push_back(pid);
                                       return all;
                                     },
                                 .over = [this] { stop(Micros(0), Cause::disk); }});
}

void Run::stop(Micros grace, Cause cause) {
  if (finished_) return;
  if (cause_ == Cause::none) cause_ = cause;
  if (!started_.control) {  // its image is not there yet
    images_.cancel(this);
    return finish(ending_of(ends_, cause_, spares_));
  }
  if (!stopping_) signal_init(SIGTERM);  // once: programs take a second for "at once"
  stopping_ = true;
  if (kill_ && kill_->first <= clock_.now() + grace) return;
  if (kill_) loop_.cancel(*kill_);
  kill_ = loop_.after(grace, [this] { kill(); });
}

void Run::kill() {
  signal_init(SIGUSR1);
  // What escaped init, where there is no namespace to end it.
  for (const auto& task : tasks_)
    if (task.group && !own_view_) task.group->kill();
  kill_ = loop_.after(kKillAgain, [this] { kill(); });
}

void Run::signal_init(int number) { ::syscall(SYS_pidfd_send_signal, started_.process.get(), number, nullptr, 0); }

void Run::read_output(TaskRun& task, bool to_its_end) {
  static std::array<std::byte, kOutputAtOnce> buffer;  // one loop, one thread
  do {
    const auto n = ::read(task.output.get(), buffer.data(), buffer.size());
    if (n > 0) task.log->write(BytesView(buffer).first(static_cast<std::size_t>(n)));
    if (n == 0) loop_.unwatch(task.output.get());
    if (n <= 0) return;
  } while (to_its_end);
}

void Run::hear() {
  while (!finished_) {
    InitSays says;
    const auto n = ::recv(started_.control.get(), &says, sizeof says, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) loop_.unwatch(started_.control.get());
    if (n != sizeof says) return;
    hear(says);
  }
}

// It ends by itself only after it has told so. When it is dead, so is everything in its namespace.
void Run::init_died() {
  hear();
  if (finished_) return;
  for (const auto& task : tasks_) {
    if (task.group && !own_view_) task.group->kill();
    if (!task.ended) ends_.push_back({.rank = task.rank, .signal = SIGKILL, .told = stopping_});
  }
  finish(failed_ ? *failed_ : ending_of(ends_, cause_, spares_));
}

void Run::hear(const InitSays& says) {
  switch (says.what) {
    case InitSays::What::running:
      return calls_.running(level_);
    case InitSays::What::failed:
      failed_ = not_started(fmt::format("{}: {}", says.text, std::generic_category().message(says.error)), says.rank);
      return signal_init(SIGUSR1);
    case InitSays::What::task_ended:
      return task_ended(says);
    case InitSays::What::all_ended:
      if (network_ && says.status != 0) machine_.networks().give_back(std::move(network_));
      return finish(failed_ ? *failed_ : ending_of(ends_, cause_, spares_));
  }
}

void Run::task_ended(const InitSays& says) {
  const auto task = std::find_if(tasks_.begin(), tasks_.end(), [&](const TaskRun& t) { return t.rank == says.rank; });
  task->ended = true;
  used_.cpu += Micros(says.cpu_us);
  used_.memory_peak_bytes += says.memory_peak_bytes;
  TaskEnd end{.rank = says.rank, .told = stopping_};
  if (WIFSIGNALED(says.status))
    end.signal = WTERMSIG(says.status);
  else
    end.exit_code = WEXITSTATUS(says.status);
  const bool well = says.status == 0;
  if (!well && task->group) end.out_of_memory = task->group->use().out_of_memory;
  ends_.push_back(end);
  const bool others = std::any_of(tasks_.begin(), tasks_.end(), [](const TaskRun& t) { return !t.ended; });
  const auto lost = std::count_if(ends_.begin(), ends_.end(), was_lost);
  const bool replaced = was_lost(end) && lost <= spares_;
  if (!well && others && !stopping_ && !replaced) stop(grace_, Cause::a_task_failed);
}

Used Run::used() const {
  if (tasks_.empty() || !tasks_[0].group) return used_;
  Used grouped;
  for (const auto& task : tasks_) {
    if (!task.group) continue;
    const auto use = task.group->use();
    grouped.cpu += use.cpu;
    grouped.memory_peak_bytes += use.memory_peak_bytes;
  }
  return grouped;
}

void Run::finish(Ending ending) {
  finished_ = true;
  disk_.reset();
  for (auto& task : tasks_)
    if (task.output) read_output(task, true);
  ending.used = used();
  ending.at = clock_.wall();
  network_ = sys::Descriptor();
  calls_.ended(std::move(ending));
}

}  // namespace falaj::execute::local
