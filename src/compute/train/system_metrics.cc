// SPDX-License-Identifier: Apache-2.0
#include "compute/train/system_metrics.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "foundation/sys/power.h"

namespace falaj::train {
namespace {

constexpr sys::Micros kSampleEvery = std::chrono::seconds(5);
constexpr double kMegabyte = 1e6;

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double resident_bytes() {
  unsigned long long size = 0, resident = 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  if (!file || std::fscanf(file.get(), "%llu %llu", &size, &resident) != 2) return 0;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

// The few calls of NVML that are made, from its reference; 0 is success.
class SystemMetrics::Gpus {
 public:
  Gpus() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) return;
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(count_, "nvmlDeviceGetCount_v2");
    find(handle_, "nvmlDeviceGetHandleByIndex_v2");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    find(use_, "nvmlDeviceGetUtilizationRates");
    find(power_, "nvmlDeviceGetPowerUsage");
    energy_ = reinterpret_cast<decltype(energy_)>(::dlsym(library_, "nvmlDeviceGetTotalEnergyConsumption"));
    ready_ = complete_ && init_() == 0;
  }
  ~Gpus() {
    if (ready_) shutdown_();
    if (library_) ::dlclose(library_);
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  void sample(std::vector<std::pair<std::string, double>>& out) const {
    unsigned count = 0;
    if (!ready_ || count_(&count) != 0) return;
    for (unsigned index = 0; index < count; ++index) {
      void* device = nullptr;
      if (handle_(index, &device) != 0) continue;
      const auto put = [&](const char* what, double value) {
        out.emplace_back(fmt::format("system/gpu_{}_{}", index, what), value);
      };
      Memory memory{};
      if (memory_(device, &memory) == 0) put("memory_usage_megabytes", static_cast<double>(memory.used) / kMegabyte);
      Use use{};
      if (use_(device, &use) == 0) put("utilization_percentage", use.gpu);
      unsigned milliwatts = 0;
      if (power_(device, &milliwatts) == 0) put("power_usage_watts", milliwatts / 1e3);
    }
  }

  // Since the driver was loaded; nothing where it does not count.
  std::optional<double> joules() const {
    unsigned count = 0;
    if (!ready_ || !energy_ || count_(&count) != 0) return std::nullopt;
    std::optional<double> sum;
    for (unsigned index = 0; index < count; ++index) {
      void* device = nullptr;
      unsigned long long millijoules = 0;
      if (handle_(index, &device) != 0 || energy_(device, &millijoules) != 0) continue;
      sum = sum.value_or(0) + static_cast<double>(millijoules) / 1e3;
    }
    return sum;
  }

 private:
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Use {
    unsigned gpu, memory;
  };
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library_, name));
    complete_ = complete_ && function != nullptr;
  }

  void* library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, void**) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  int (*use_)(void*, Use*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;  // of newer drivers
  bool complete_ = true, ready_ = false;
};

class SystemMetrics::Energy {
 public:
  Energy(const std::string& directory, const Gpus& gpus)
      : gpus_(gpus), gpus_before_(gpus.joules()), packages_(directory) {}

  // Since this began, of the whole machine; nothing where nobody counts.
  std::optional<double> joules() {
    const auto processors = packages_.joules();
    const auto gpus = gpus_.joules();
    if (!processors && !gpus) return std::nullopt;
    return processors.value_or(0) + (gpus ? *gpus - gpus_before_.value_or(*gpus) : 0);
  }

 private:
  const Gpus& gpus_;
  const std::optional<double> gpus_before_;
  sys::PackageEnergy packages_;
};

SystemMetrics::SystemMetrics(const sys::Clock& clock, int processors, std::int64_t memory_bytes,
                             const std::string& power)
    : clock_(clock),
      processors_(std::max(1, processors)),
      memory_bytes_(static_cast<double>(memory_bytes)),
      gpus_(std::make_unique<Gpus>()),
      energy_(std::make_unique<Energy>(power, *gpus_)),
      at_(clock.now()),
      processor_seconds_(processor_seconds()) {}

SystemMetrics::~SystemMetrics() = default;

std::vector<std::pair<std::string, double>> SystemMetrics::sample() {
  std::vector<std::pair<std::string, double>> out;
  const auto now = clock_.now();
  if (now - at_ < kSampleEvery) return out;
  const auto used = processor_seconds(), resident = resident_bytes();
  const auto passed = std::chrono::duration<double>(now - at_).count();
  out.emplace_back("system/cpu_utilization_percentage", 100 * (used - processor_seconds_) / (passed * processors_));
  out.emplace_back("system/system_memory_usage_megabytes", resident / kMegabyte);
  out.emplace_back("system/system_memory_usage_percentage", 100 * resident / memory_bytes_);
  gpus_->sample(out);
  if (const auto joules = energy_->joules()) out.emplace_back("system/energy_joules", *joules);
  at_ = now;
  processor_seconds_ = used;
  return out;
}

}  // namespace falaj::train
