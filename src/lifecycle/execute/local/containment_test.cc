// SPDX-License-Identifier: Apache-2.0
// What a job can do to this machine, to other jobs and to the server: nothing. Real jobs that try.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/restrict.h"
#include "lifecycle/execute/local/testing.h"

namespace falaj::execute::local {
namespace {

class Containment : public testing::Test {
 protected:
  void SetUp() override {
    if (!executor().abilities().namespaces) GTEST_SKIP() << "no namespaces here: " << executor().abilities().lacking;
  }
  bool has_groups() { return executor().abilities().groups; }
  LocalExecutor& executor() { return node_.executor(); }
  TestNode& node() { return node_; }

  Launch launch(const std::string& attempt, const std::string& script) {
    Launch out;
    out.attempt = attempt;
    out.command = {"bash", "-c", script};
    out.environment = {{"PATH", "/usr/bin:/bin"}};
    out.work_directory = node_ / ("work-" + attempt);
    out.tasks = {Task{}};
    out.isolation_min = executor().nodes()[0].isolation_max;
    return out;
  }
  template <class F>
  Report await(const std::string& attempt, F wanted) {
    const auto until = clock_.now() + std::chrono::seconds(60);
    for (std::uint64_t seen = 0; clock_.now() < until;)
      for (const auto& report : executor().poll(seen, std::chrono::milliseconds(50)))
        if (report.attempt == attempt && wanted(report)) return report;
    throw Error(Code::deadline, "waited a minute for " + attempt);
  }
  Ending await_end(const std::string& attempt) {
    return *await(attempt, [](const Report& report) { return report.phase == Phase::ended; }).ending;
  }
  void await_log(const std::string& attempt, const std::string& text) {
    await(attempt, [&](const Report& report) {
      return report.phase == Phase::ended || log(attempt).find(text) != std::string::npos;
    });
  }
  Ending run(const Launch& launch) {
    executor().start(launch);
    return await_end(launch.attempt);
  }
  // What a script prints; it must succeed.
  std::string output_of(const std::string& attempt, const std::string& script) {
    const auto ending = run(launch(attempt, script));
    EXPECT_EQ(name_of(ending.reason), "finished") << ending.message << "\n" << log(attempt);
    EXPECT_EQ(ending.exit_code, 0) << log(attempt);
    return log(attempt);
  }
  std::string log(const std::string& attempt, int rank = 0) { return executor().logs(attempt, rank, 0, 1 << 20).text; }

  sys::RealClock clock_;

 private:
  TestNode node_;
};

TEST_F(Containment, AForkBombIsBounded) {
  auto bomb = launch("bomb.1", "echo begins; f() { f | f & }; f; f; f; sleep 600");
  bomb.limits.processes = 40;
  bomb.time_limit = std::chrono::milliseconds(1500);
  executor().start(bomb);
  await_log("bomb.1", "begins");
  EXPECT_EQ(output_of("other.1", "echo fine | cat"), "fine\n");
  EXPECT_EQ(name_of(await_end("bomb.1").reason), "time_limit");
  EXPECT_NE(log("bomb.1").find("Resource temporarily unavailable"), std::string::npos);
}

TEST_F(Containment, AMemoryBombIsKilledAndSaidSo) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  auto bomb = launch("bomb.1", "head -c 1G /dev/zero | tail -c 512M | wc -c");
  bomb.limits.memory_bytes = 64 << 20;
  bomb.command = {"bash", "-c", "set -o pipefail; head -c 1G /dev/zero | tail -c 512M | wc -c"};
  const auto ending = run(bomb);
  EXPECT_EQ(name_of(ending.reason), "out_of_memory") << ending.message << log("bomb.1");
  EXPECT_LE(ending.used.memory_peak_bytes, 64 << 20);
  EXPECT_GT(ending.used.memory_peak_bytes, 32 << 20);
}

TEST_F(Containment, FilesInMemoryCountAsMemory) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  auto bomb = launch("bomb.1", "head -c 1G /dev/zero > /tmp/x || head -c 1G /dev/zero > /dev/shm/x");
  bomb.limits.memory_bytes = 64 << 20;
  const auto ending = run(bomb);
  EXPECT_TRUE(ending.reason == Reason::out_of_memory || ending.exit_code != 0) << ending.message;
}

TEST_F(Containment, ADiskFillerIsStopped) {
  auto filler = launch("filler.1", "for ((i = 0; ; i++)); do head -c 1M /dev/zero > file$i || exit 1; done");
  filler.limits.disk_bytes = 8 << 20;
  EXPECT_EQ(name_of(run(filler).reason), "out_of_disk");
  auto one = launch("filler.2", "head -c 64M /dev/zero > file");
  one.limits.disk_bytes = 8 << 20;
  EXPECT_NE(run(one).exit_code, 0);
  EXPECT_LE(std::filesystem::file_size(one.work_directory + "/file"), 8U << 20);
}

TEST_F(Containment, FilesWithoutANameCountToo) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  auto filler =
      launch("filler.1",
             "for ((i = 10; i < 200; i++)); do eval \"exec $i> file\"; rm file; head -c 1M /dev/zero >&$i; done; "
             "sleep 600");
  filler.limits.disk_bytes = 8 << 20;
  EXPECT_EQ(name_of(run(filler).reason), "out_of_disk");
}

TEST_F(Containment, SignalsReachOnlyItsOwnProcesses) {
  executor().start(launch("victim.1", "echo here; while [ ! -e go ]; do sleep 0.02; done"));
  await_log("victim.1", "here");
  const auto pids = std::to_string(::getpid()) + " " + std::to_string(executor().abilities().keeper_pid);
  EXPECT_EQ(output_of("sender.1", "for p in " + pids + "; do kill -9 $p 2>&1 | grep -c 'No such process'; done"),
            "1\n1\n");
  // Everything it can see, its own init among them.
  const auto ending =
      run(launch("sender.2", "for s in TERM USR1 KILL STOP; do kill -$s 1; done; kill -9 -1; kill -9 $$"));
  EXPECT_EQ(name_of(ending.reason), "signalled") << ending.message;
  std::ofstream(node() / "work-victim.1/go").put('\n');
  EXPECT_EQ(await_end("victim.1").exit_code, 0);
}

TEST_F(Containment, SeesNoFilesButItsOwn) {
  std::ofstream(node() / "secret") << "of the server";
  auto other = launch("other.1", "echo mine > file; echo ready; while [ ! -e go ]; do sleep 0.02; done");
  executor().start(other);
  await_log("other.1", "ready");
  std::string look;
  for (const auto& path : {node() / "secret", node() / "keeper", node() / "keeper/keeper.sock",
                           node() / "keeper/journal", other.work_directory, other.work_directory + "/file",
                           "/proc/" + std::to_string(executor().abilities().keeper_pid)})
    look += "[ -e '" + path + "' ] && echo 'seen: " + path + "'; ";
  for (const char* path : {"/root", "/home", "/var", "/run", "/boot", "/etc/shadow", "/etc/ssh", "/etc/ssl/private",
                           "/sys/fs/cgroup/memory", "/dev/vda", "/dev/mem", "/dev/kvm"})
    look += std::string("[ -e '") + path + "' ] && echo 'seen: " + path + "'; ";
  EXPECT_EQ(output_of("look.1", look + "echo looked; ls /usr/bin/env"), "looked\n/usr/bin/env\n");
  EXPECT_EQ(output_of("mine.1", "pwd; ls -A; ls " + node().directory()), (node() / "work-mine.1") + "\nwork-mine.1\n");
  executor().stop("other.1", sys::Micros(0));
}

TEST_F(Containment, ChangesNothingOfTheHost) {
  const std::string beside = node() / "beside";  // at most in a /tmp of its own
  EXPECT_EQ(output_of("write.1",
                      "for d in / /usr /usr/bin /etc /dev /proc/sys/kernel /sys/devices/system /opt; do "
                      "touch $d/x 2>/dev/null && echo \"wrote $d\"; done; "
                      "touch /tmp/falaj-x /dev/shm/falaj-x x && ls; touch " +
                          beside + " 2>/dev/null; true"),
            "x\n");
  for (const auto& path : {std::string("/tmp/falaj-x"), std::string("/dev/shm/falaj-x"), beside})
    EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

TEST_F(Containment, HasNoPrivileges) {
  const auto status = output_of("status.1", "grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid)' /proc/self/status; ulimit -c");
  for (const char* line :
       {"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "\n0\n"})
    EXPECT_NE(status.find(line), std::string::npos) << line << "\n" << status;
  EXPECT_EQ(status.find("Uid:\t0"), std::string::npos) << status;
  EXPECT_EQ(
      output_of("calls.1",
                "for c in 'unshare -U true' 'unshare -n true' 'mount -t tmpfs none /tmp' 'umount /tmp' 'chroot / true' "
                "'hostname x' 'dmesg' 'mknod n c 1 3' 'strace true' 'setpriv --reuid 0 true' 'swapoff -a' "
                "'nsenter -t 1 -m true'; do $c >/dev/null 2>&1 && echo \"could $c\"; done; true"),
      "");
}

// Calls that no program of the host makes for us.
TEST_F(Containment, DangerousCallsAreRefused) {
  const char* script = R"(
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, number, *args):
    r = libc.syscall(number, *args)
    e = ctypes.get_errno()
    if r != -1 or e not in (errno.EPERM, errno.ENOSYS): print('could', name, r, errno.errorcode.get(e))
refused('io_uring_setup', 425, 8, 0)
refused('bpf', 321, 0, 0, 0)
refused('userfaultfd', 323, 0)
refused('keyctl', 250, 0, 0, 0)
refused('ptrace', 101, 0, 0, 0)
refused('process_vm_readv', 310, 1, 0, 0, 0, 0)
refused('perf_event_open', 298, 0, 0, 0, 0)
refused('clone with NEWUSER', 56, 0x10000000, 0, 0, 0, 0)
refused('clone3', 435, 0, 0)
refused('open_by_handle_at', 304, 0, 0, 0)
refused('mount_setattr', 442, -100, 0, 0, 0, 0)
refused('ioctl TIOCSTI', 16, 0, 0x5412, 0)
refused('ioctl TIOCSTI, high bits', 16, 0, 0x100005412, 0)
for family in (socket.AF_VSOCK, socket.AF_PACKET, 38):
    try: socket.socket(family, socket.SOCK_STREAM); print('could open', family)
    except OSError as e: assert e.errno == errno.EAFNOSUPPORT, e
)";
  auto calls = launch("calls.1", "");
  calls.command = {"python3", "-c", script};
  EXPECT_EQ(run(calls).exit_code, 0);
  EXPECT_EQ(log("calls.1"), "");
}

TEST_F(Containment, HasItsOwnNamespaces) {
  const char* script =
      "for n in user mnt pid net ipc uts; do readlink /proc/self/ns/$n; done; echo; while [ ! -e go ]; do sleep 0.02; "
      "done";
  std::set<std::string> all;
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"})
    all.insert(std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string());
  for (const char* attempt : {"one.1", "two.1", "three.1"}) {
    executor().start(launch(attempt, script));
    await_log(attempt, "\n\n");
    const std::string text = log(attempt);
    for (const auto line : split(trim(text), '\n')) EXPECT_TRUE(all.insert(std::string(line)).second) << line;
  }
  EXPECT_EQ(all.size(), 4U * 6);
}

TEST_F(Containment, HasNoNetworkUnlessAskedFor) {
  const sys::Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listening.get(), 4), 0);
  ASSERT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string reach = "(exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(ntohs(address.sin_port)) +
                            ") 2>/dev/null && echo reached; tail -n +3 /proc/net/dev | wc -l";
  EXPECT_EQ(output_of("none.1", reach), "1\n");
  auto host = launch("host.1", reach);
  host.network = Network::host;
  host.isolation_min = Isolation::isolated;
  EXPECT_EQ(name_of(run(host).reason), "not_started");  // not isolated then
  host.attempt = "host.2";
  host.isolation_min = Isolation::restricted;
  EXPECT_EQ(run(host).exit_code, 0);
  EXPECT_TRUE(log("host.2").starts_with("reached\n")) << log("host.2");
}

// A program that is stopped hears of nothing; told to end, it is woken to save its work.
TEST_F(Containment, OneThatIsStoppedIsWokenToEnd) {
  executor().start(launch("asleep.1",
                          "trap 'exit 75' TERM\n"
                          "(until grep -q '^State:.T' /proc/$$/status; do :; done; echo asleep) & kill -STOP $$\n"
                          "while :; do sleep 0.02; done"));
  await_log("asleep.1", "asleep");
  executor().stop("asleep.1", std::chrono::seconds(40));
  EXPECT_EQ(name_of(await_end("asleep.1").reason), "checkpointed");
}

TEST_F(Containment, SpareTasksStandInForOneThatIsKilled) {
  const auto gang_of = [&](const std::string& attempt, int spares) {
    auto gang = launch(attempt,
                       "trap 'exit 3' TERM\n"
                       "if [ $RANK = 1 ]; then echo $$ >1.new; mv 1.new 1; kill -KILL $$; fi\n"
                       "until [ -e 1 ]; do sleep 0.01; done; while [ -e /proc/$(<1) ]; do sleep 0.01; done\n"
                       "[ $RANK = 0 ] || exit 0\n"
                       "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done");
    gang.tasks = {Task{}, Task{}, Task{}};
    for (int rank = 0; rank < 3; ++rank) gang.tasks[static_cast<std::size_t>(rank)].rank = rank;
    gang.grace = std::chrono::seconds(20);
    gang.spares = spares;
    return run(gang);
  };
  const auto with = gang_of("spare.1", 1);
  EXPECT_EQ(name_of(with.reason), "finished") << with.message;
  EXPECT_EQ(with.exit_code, 0);
  const auto without = gang_of("spare.2", 0);
  EXPECT_EQ(name_of(without.reason), "signalled") << without.message;
  EXPECT_EQ(without.rank, 1);
}

TEST_F(Containment, TheTasksOfAGangReachEachOther) {
  const char* script = R"(
import os, socket
rank, size, at = int(os.environ['RANK']), int(os.environ['WORLD_SIZE']), (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if rank == 0:
    server = socket.create_server(at)
    print(sorted(server.accept()[0].recv(1)[0] for _ in range(size - 1)))
else:
    while True:
        try: s = socket.create_connection(at); break
        except ConnectionRefusedError: pass
    s.sendall(bytes([rank]))
)";
  for (const char* attempt : {"gang.1", "gang.2"}) {
    auto gang = launch(attempt, "");
    gang.command = {"python3", "-c", script};
    gang.tasks = {Task{}, Task{}, Task{}};
    for (int rank = 0; rank < 3; ++rank) gang.tasks[static_cast<std::size_t>(rank)].rank = rank;
    EXPECT_EQ(run(gang).exit_code, 0) << log(attempt);
    EXPECT_EQ(log(attempt), "[1, 2]\n");
  }
}

TEST_F(Containment, IsPinnedToItsProcessors) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  auto pinned = launch(
      "pinned.1",
      "taskset -cp $$ | sed 's/.*: //'; taskset -c 0-1023 true 2>/dev/null; grep Cpus_allowed_list /proc/self/status");
  pinned.tasks[0].cpus = {0};
  EXPECT_EQ(run(pinned).exit_code, 0);
  EXPECT_EQ(log("pinned.1"), "0\nCpus_allowed_list:\t0\n");
}

TEST_F(Containment, SeesOnlyTheGpusGivenToIt) {
  auto with = launch("with.1", "echo $CUDA_VISIBLE_DEVICES");
  with.tasks[0].gpus = {"GPU-1", "GPU-3"};
  EXPECT_EQ(run(with).exit_code, 0);
  EXPECT_EQ(log("with.1"), "GPU-1,GPU-3\n");
  EXPECT_EQ(output_of("without.1", "echo \"<${CUDA_VISIBLE_DEVICES-unset}>\""), "<>\n");
}

TEST_F(Containment, ProcessorTimeIsBoundedAndCounted) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  auto busy = launch("busy.1", "while :; do :; done");
  busy.limits.cpu_millis = 200;
  busy.time_limit = std::chrono::seconds(1);
  const auto ending = run(busy);
  EXPECT_EQ(name_of(ending.reason), "time_limit");
  EXPECT_GT(ending.used.cpu, std::chrono::milliseconds(50));
  EXPECT_LT(ending.used.cpu, std::chrono::milliseconds(500));
}

TEST_F(Containment, WhatItTookSoFarIsKnownWhileItRuns) {
  if (!has_groups()) GTEST_SKIP() << "no groups of processes here";
  executor().start(launch("busy.1", "while :; do :; done"));
  executor().start(launch("idle.1", "echo begins; exec sleep 600"));
  await_log("idle.1", "begins");
  const auto took = [&](const std::string& attempt) { return executor().used(attempt).value_or(Used{}).cpu; };
  for (const auto until = clock_.now() + std::chrono::seconds(60); clock_.now() < until;)
    if (took("busy.1") > std::chrono::milliseconds(300)) break;
  EXPECT_GT(took("busy.1"), std::chrono::milliseconds(300));
  EXPECT_LT(took("idle.1"), std::chrono::milliseconds(200));
  for (const auto* attempt : {"busy.1", "idle.1"}) executor().stop(attempt, Micros(0));
  await_end("busy.1");
  EXPECT_FALSE(executor().used("nobody.1"));
}

TEST_F(Containment, WhatATaskLeavesBehindEndsWithIt) {
  auto leaves =
      launch("leaves.1", "exec 9> lock; flock 9; (setsid sleep 600 &) ; (trap '' TERM HUP; sleep 600) & exit 0");
  EXPECT_EQ(run(leaves).exit_code, 0);
  const sys::Descriptor lock(::open((leaves.work_directory + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(Containment, DirectoriesOfTheServerAreNotGiven) {
  for (const auto& path : {node() / "keeper", node().directory(), std::string("/"), std::string("/etc"),
                           std::string("/proc"), std::string("/tmp")}) {
    auto asks = launch("asks.1", "true");
    asks.mounts = {{path, false}};
    EXPECT_ERROR(executor().start(asks), Code::invalid);
  }
  std::filesystem::create_directory_symlink("/etc", node() / "link");
  auto asks = launch("asks.2", "true");
  asks.mounts = {{node() / "link", false}};
  EXPECT_EQ(name_of(run(asks).reason), "not_started");
}

TEST_F(Containment, MountsAreShownAsAsked) {
  std::filesystem::create_directories(node() / "data/deep");
  std::ofstream(node() / "data/deep/file") << "input\n";
  std::ofstream(node() / "single") << "one\n";
  std::filesystem::permissions(node() / "single", std::filesystem::perms::owner_read);
  auto reads = launch("reads.1", "cat " + (node() / "data/deep/file") + " " + (node() / "single") + "; touch " +
                                     (node() / "data/x") + " 2>/dev/null && echo wrote; ls " + node().directory());
  reads.mounts = {{node() / "data", false}, {node() / "single", false}};
  EXPECT_EQ(run(reads).exit_code, 0);
  EXPECT_EQ(log("reads.1"), "input\none\ndata\nsingle\nwork-reads.1\n");
}

// A root file system with one shell in it, and a link that leads out.
std::string make_image(const TestNode& node) {
  const std::string image = node / "image";
  for (const char* name : {"bin", "lib64", "lib/x86_64-linux-gnu", "etc"})
    std::filesystem::create_directories(image + "/" + name);
  for (const char* name : {"/bin/bash", "/bin/cat", "/bin/ls", "/lib64/ld-linux-x86-64.so.2",
                           "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libtinfo.so.6",
                           "/lib/x86_64-linux-gnu/libselinux.so.1", "/lib/x86_64-linux-gnu/libpcre2-8.so.0"})
    std::filesystem::copy_file(name, image + name);
  std::filesystem::create_directory_symlink("/etc", image + "/outside");
  std::ofstream(image + "/etc/made-by") << "us\n";
  return image;
}

TEST_F(Containment, AnImageIsItsRoot) {
  auto inside =
      launch("inside.1",
             "ls / ; cat /etc/made-by /outside/made-by; cat /etc/hosts | (read -r a b; echo $a); "
             "for d in / /bin /etc /usr; do (: > $d/x) 2>/dev/null && echo wrote $d; done; "
             ": > x && : > /tmp/x && : > /dev/shm/x && echo $(<$INPUT) $$ && pwd; [ -e /usr/bin ] && echo host");
  inside.command[0] = "/bin/bash";
  inside.command[2] += "; exit 0";
  inside.image = make_image(node());
  std::ofstream(node() / "input") << "given\n";
  inside.mounts = {{node() / "input", false}};
  inside.environment["INPUT"] = node() / "input";
  EXPECT_EQ(run(inside).exit_code, 0) << log("inside.1");
  EXPECT_EQ(log("inside.1"), "bin\ndev\netc\nlib\nlib64\noutside\nproc\nsys\ntmp\nus\nus\n127.0.0.1\ngiven 2\n" +
                                 inside.work_directory + "\n");
  EXPECT_TRUE(std::filesystem::exists(inside.work_directory + "/x"));
  EXPECT_FALSE(std::filesystem::exists(inside.image + "/proc"));  // nothing was written into it
  inside.attempt = "inside.2";
  inside.image = node() / "nowhere";
  EXPECT_EQ(name_of(run(inside).reason), "not_started");
}

// Two layers: the second replaces, hides and links.
constexpr const char* kMakeLayout = R"(
import gzip, hashlib, io, json, os, sys, tarfile
image, layout, evil = sys.argv[1], sys.argv[2], sys.argv[3:]
os.makedirs(layout + '/blobs/sha256')
def blob(data):
    digest = hashlib.sha256(data).hexdigest()
    open(layout + '/blobs/sha256/' + digest, 'wb').write(data)
    return {'digest': 'sha256:' + digest, 'size': len(data)}
def layer(add):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as tar: add(tar)
    return out.getvalue()
def file(tar, name, text=b'', mode=0o644, kind=tarfile.REGTYPE, link=''):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(text), mode, kind, link
    tar.addfile(info, io.BytesIO(text))
def first(tar):
    tar.add(image, arcname='.')
    file(tar, 'gone', b'x'); file(tar, 'opaque/old', b'x'); file(tar, 'replaced', b'old'); file(tar, 'a' * 120 + '/' + 'b' * 120, b'long')
    file(tar, 'out', kind=tarfile.SYMTYPE, link='/etc'); file(tar, 'node', kind=tarfile.CHRTYPE)
def second(tar):
    file(tar, '.wh.gone'); file(tar, 'opaque/.wh..wh..opq'); file(tar, 'opaque/new', b'x'); file(tar, 'replaced', b'new')
    file(tar, 'again', kind=tarfile.LNKTYPE, link='replaced'); file(tar, 'out/through', b'inside'); file(tar, 'power', b'', 0o4755)
    for name in evil: file(tar, name, b'evil')
layers = [blob(layer(first)), blob(gzip.compress(layer(second)))]
manifest = blob(json.dumps({'schemaVersion': 2, 'layers': layers}).encode())
manifest['platform'] = {'os': 'linux', 'architecture': 'amd64'}
other = {'digest': 'sha256:' + '0' * 64, 'platform': {'os': 'linux', 'architecture': 'other'}}
json.dump({'schemaVersion': 2, 'manifests': [other, manifest]}, open(layout + '/index.json', 'w'))
open(layout + '/oci-layout', 'w').write('{"imageLayoutVersion": "1.0.0"}')
)";

TEST_F(Containment, AnImageOfLayersIsUnpackedOnce) {
  const auto make_layout = [&](const std::string& name, const std::vector<std::string>& evil) {
    sys::RealProcesses processes;
    sys::Command make;
    make.argv = {"python3", "-c", kMakeLayout, node() / "image", node() / name};
    make.argv.insert(make.argv.end(), evil.begin(), evil.end());
    EXPECT_EQ(processes.start(make)->wait(std::chrono::seconds(60)), sys::Exit{});
    return node() / name;
  };
  make_image(node());
  auto inside = launch("inside.1", "");
  inside.command = {
      "/bin/bash", "-c",
      "echo $(</replaced) $(</again) $(</etc/through); ls / /opaque; ls -l /power | (read -r m x; echo $m)"};
  inside.image = make_layout("layout", {});
  auto at_once = inside;
  at_once.attempt = "inside.2";
  at_once.work_directory += "2";
  executor().start(inside);
  executor().start(at_once);
  for (const char* attempt : {"inside.1", "inside.2"}) {
    const auto ending = await_end(attempt);
    EXPECT_EQ(ending.exit_code, 0) << ending.message << log(attempt);
    EXPECT_EQ(log(attempt),
              "new new inside\n/:\n" + std::string(120, 'a') +
                  "\nagain\nbin\ndev\netc\nlib\nlib64\nopaque\nout\noutside\npower\nproc\nreplaced\nsys\ntmp\n" +
                  "\n/opaque:\nnew\n-rwxr-xr-x\n");
  }
  inside.attempt = "inside.3";
  inside.image = make_layout("evil", {"a/../../../escaped"});
  const auto refused = run(inside);
  EXPECT_EQ(name_of(refused.reason), "not_started");
  EXPECT_NE(refused.message.find("leads out of it"), std::string::npos) << refused.message;
  // A layer whose bytes were changed.
  inside.attempt = "inside.4";
  inside.image = make_layout("changed", {"different"});
  for (const auto& blob : std::filesystem::directory_iterator(inside.image + "/blobs/sha256"))
    if (blob.file_size() > 1 << 20) std::ofstream(blob.path(), std::ios::app) << "x";
  EXPECT_NE(run(inside).message.find("does not match its digest"), std::string::npos);
}

// Without namespaces Landlock is what keeps a job from others.
TEST(Isolation, RestrictedIsKeptFromFilesAndProcessesToo) {
  if (landlock_version() < 6) GTEST_SKIP() << "Landlock of this kernel does not know signals";
  LocalSettings settings;
  settings.isolation_max = Isolation::restricted;
  TestNode node(settings);
  std::ofstream(node / "secret") << "of the server";
  const auto keeper = std::to_string(node.executor().abilities().keeper_pid);
  Launch launch;
  launch.attempt = "tries.1";
  launch.command = {
      "bash", "-c",
      "kill -9 " + keeper + " 2>/dev/null && echo killed; cat " + (node / "secret") +
          " 2>/dev/null; cat /etc/shadow 2>/dev/null; cat /proc/" + keeper +
          "/environ 2>/dev/null; (: > /tmp/falaj-x) 2>/dev/null && echo wrote; "
          "(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1 | grep -q 'not supported' && echo 1; : > mine && echo $TMPDIR"};
  launch.environment = {{"PATH", "/usr/bin:/bin"}};
  launch.work_directory = node / "work";
  launch.tasks = {Task{}};
  node.executor().start(launch);
  for (std::uint64_t seen = 0;;) {
    const auto reports = node.executor().poll(seen, std::chrono::seconds(10));
    ASSERT_EQ(reports.size(), 1U);
    if (reports[0].phase == Phase::ended) {
      EXPECT_EQ(reports[0].ending->exit_code, 0) << reports[0].ending->message;
      EXPECT_EQ(name_of(reports[0].isolation), "restricted");
      break;
    }
  }
  EXPECT_EQ(node.executor().logs("tries.1", 0, 0, 10'000).text, "1\n" + launch.work_directory + "\n");
}

TEST(Isolation, BelowTheMinimumNothingIsStarted) {
  LocalSettings settings;
  settings.isolation_max = Isolation::restricted;
  TestNode node(settings);
  EXPECT_EQ(name_of(node.executor().nodes()[0].isolation_max), "restricted");
  Launch launch;
  launch.attempt = "strict.1";
  launch.command = {"/bin/touch", "ran"};
  launch.work_directory = node / "work";
  launch.tasks = {Task{}};
  launch.isolation_min = Isolation::contained;
  node.executor().start(launch);
  std::uint64_t seen = 0;
  for (;;) {
    const auto reports = node.executor().poll(seen, std::chrono::seconds(10));
    ASSERT_EQ(reports.size(), 1U);
    if (reports[0].phase != Phase::ended) continue;
    EXPECT_EQ(name_of(reports[0].ending->reason), "not_started");
    EXPECT_NE(reports[0].ending->message.find("contained is asked for"), std::string::npos)
        << reports[0].ending->message;
    break;
  }
  EXPECT_FALSE(std::filesystem::exists(node / "work/ran"));
}

}  // namespace
}  // namespace falaj::execute::local
