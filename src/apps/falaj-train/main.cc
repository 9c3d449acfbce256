// SPDX-License-Identifier: Apache-2.0
// falaj-train: carries out a Training. It is only ever started as a job, and finds everything where every job does.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "compute/infer/session.h"
#include "compute/train/again.h"
#include "compute/train/gang.h"
#include "compute/train/model.h"
#include "compute/train/trainer.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"

namespace {

constexpr int kCheckpointed = 75;  // the contract of jobs: start me again later

std::atomic<bool> must_stop = false;

std::string from_environment(const char* name, const char* fallback = nullptr) {
  const char* value = std::getenv(name);
  if (value && *value) return value;
  if (fallback) return fallback;
  throw falaj::Error(falaj::Code::invalid,
                     fmt::format("{} is not set: falaj-train is started by `falaj train`, as a job", name));
}

// OpenBLAS mistakes new processors in virtual machines for old ones, and is then five times slower than it could be.
// Threads of OpenMP wait for each other by burning their processor; where somebody else's work runs on it too, what
// they wait for does not get it, and a step takes many times as long. oneDNN takes processors at their word that they
// have tiles (AMX), which machines say that do not let a process use them: bf16 then ends by an illegal instruction.
// Libraries look at their variable once, some when they are loaded: before any of our code runs.
void choose_kernels(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE")) return;
  const char* type = __builtin_cpu_supports("avx512f") ? "SkylakeX"
                     : __builtin_cpu_supports("avx2")  ? "Haswell"
                                                       : nullptr;
  if (!type) return;
  setenv("OPENBLAS_CORETYPE", type, 1);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0);
  execv("/proc/self/exe", argv);  // when it fails, training is slow, not wrong
}

// Several tasks work together as the contract of jobs says; one is alone.
std::optional<falaj::train::GangPlace> place_in_gang(const falaj::recipe::Training& training) {
  falaj::train::GangPlace place;
  place.tasks = std::stoul(from_environment("WORLD_SIZE", "1"));
  if (place.tasks < 2) return std::nullopt;
  if (training.parallel.mode == "none")
    throw falaj::Error(falaj::Code::invalid, "parallel.mode: several tasks need one, such as data");
  place.task = std::stoul(from_environment("RANK"));
  place.gpu = training.resources.gpus > 0;
  place.spares = static_cast<std::size_t>(training.parallel.spares);
  if (place.spares >= place.tasks)
    throw falaj::Error(falaj::Code::invalid, "parallel.spares: there are no more tasks than that");
  place.before = falaj::train::gang_before();
  place.address = from_environment("MASTER_ADDR");
  place.port = std::stoi(from_environment("MASTER_PORT"));
  place.name = from_environment("FALAJ_JOB_ID", "job") + "/" + from_environment("FALAJ_ATTEMPT", "1");
  place.lost = [spares = place.spares](const falaj::train::Broken& broken) {
    if (spares > 0 && !must_stop) falaj::train::start_again(broken);
    fmt::print(stderr, "falaj-train: {}; the gang starts again from the last checkpoint\n", broken.why);
    std::fflush(nullptr);
    std::_Exit(kCheckpointed);  // others may wait for what never comes: nothing can be unwound
  };
  return place;
}

falaj::recipe::Training read_recipe(const std::string& inputs) {
  constexpr std::size_t kBytesMax = 16 << 20;
  const auto bytes = falaj::sys::read_files(inputs)->read_all("training/text", kBytesMax);
  return falaj::decode<falaj::recipe::Training>(falaj::json::parse(falaj::as_text(bytes)), "training");
}

int run() {
  using namespace falaj;
  const auto inputs = from_environment("FALAJ_INPUTS");
  const auto training = read_recipe(inputs);
  train::Places places;
  places.rows = inputs + "/data";
  places.outputs = from_environment("FALAJ_OUTPUTS");
  places.checkpoints = from_environment("FALAJ_CHECKPOINT_DIR");
  places.scratch = from_environment("HOME") + "/scratch";
  places.metrics = from_environment("FALAJ_METRICS", "");
  places.run_id = from_environment("FALAJ_RUN_ID", "");
  if (std::filesystem::exists(inputs + "/against")) places.against = inputs + "/against";
  places.runtime = from_environment("FALAJ_ONNXRUNTIME", infer::Runtime::path_beside_program().c_str());
  train::Options options;
  options.gang = place_in_gang(training);
  if (options.gang) places.scratch += "-" + std::to_string(options.gang->task);
  std::filesystem::remove_all(places.scratch);  // of a gang that broke, in this process
  options.memory_bytes = std::stoll(from_environment("FALAJ_MEMORY_BYTES", "4294967296"));
  const auto cpus =
      std::stod(from_environment("FALAJ_CPUS", std::to_string(std::thread::hardware_concurrency()).c_str()));
  options.threads = std::max(1, static_cast<int>(cpus));
  options.must_stop = [] { return must_stop.load(); };
  options.look = [] {
    if (must_stop) throw train::Stopped{};
  };
  const sys::RealClock clock;
  train::train(training, places, options, clock);
  return 0;
}

}  // namespace

int main(int, char** argv) {
  choose_kernels(argv);
  struct sigaction stop {};
  stop.sa_handler = [](int) { must_stop = true; };
  sigaction(SIGTERM, &stop, nullptr);
  sigset_t let_in;  // one that was started again has it blocked
  sigemptyset(&let_in);
  sigaddset(&let_in, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &let_in, nullptr);
  try {
    return run();
  } catch (const falaj::train::Stopped&) {
    fmt::print("stopped; what was learned is in the checkpoint\n");
    return kCheckpointed;
  } catch (const falaj::Error& e) {
    fmt::print(stderr, "falaj-train: {}\n", e.what());
    for (const auto& fault : e.faults()) fmt::print(stderr, "  {}: {}\n", fault.where, fault.what);
    if (e.code() == falaj::Code::unavailable && !falaj::train::gang_before().empty()) return kCheckpointed;
    return e.code() == falaj::Code::invalid ? 2 : 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "falaj-train: out of memory; give the job more, or the network a smaller batch\n");
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "falaj-train: {}\n", e.what());
    return 1;
  }
}
