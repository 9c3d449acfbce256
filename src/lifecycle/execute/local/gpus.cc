// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/gpus.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"

namespace falaj::execute::local {
namespace {

// The few calls of NVML that we make, from its reference; 0 is success.
struct NvmlMemory {
  unsigned long long total, free, used;
};
class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), ::dlclose) {
    if (!library_) return;
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(count_, "nvmlDeviceGetCount_v2");
    find(handle_, "nvmlDeviceGetHandleByIndex_v2");
    find(name_, "nvmlDeviceGetName");
    find(uuid_, "nvmlDeviceGetUUID");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    find(minor_, "nvmlDeviceGetMinorNumber");
    ready_ = complete_ && init_() == 0;
    if (!ready_) log::warn("gpus_unknown", {{"reason", "the driver's library does not answer"}});
  }
  ~Nvml() {
    if (ready_) shutdown_();
  }

  std::vector<FoundGpu> all() const {
    std::vector<FoundGpu> out;
    unsigned count = 0;
    if (!ready_ || count_(&count) != 0) return out;
    for (unsigned index = 0; index < count; ++index) {
      void* device = nullptr;
      char name[96] = {}, uuid[96] = {};
      NvmlMemory memory{};
      unsigned minor = 0;
      if (handle_(index, &device) != 0 || name_(device, name, sizeof name) != 0 ||
          uuid_(device, uuid, sizeof uuid) != 0 || memory_(device, &memory) != 0)
        continue;
      FoundGpu& found = out.emplace_back();
      found.gpu = {uuid, gpu_type(name), static_cast<std::int64_t>(memory.total)};
      if (minor_(device, &minor) == 0) found.device = fmt::format("/dev/nvidia{}", minor);
    }
    return out;
  }

 private:
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library_.get(), name));
    complete_ = complete_ && function != nullptr;
  }

  std::unique_ptr<void, int (*)(void*)> library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, void**) = nullptr;
  int (*name_)(void*, char*, unsigned) = nullptr;
  int (*uuid_)(void*, char*, unsigned) = nullptr;
  int (*memory_)(void*, NvmlMemory*) = nullptr;
  int (*minor_)(void*, unsigned*) = nullptr;
  bool complete_ = true, ready_ = false;
};

}  // namespace

std::vector<FoundGpu> find_gpus() { return Nvml().all(); }

std::vector<std::string> device_nodes(const std::vector<FoundGpu>& all, const std::vector<std::string>& used) {
  std::vector<std::string> out;
  for (const auto& found : all)
    if (!found.device.empty() && std::find(used.begin(), used.end(), found.gpu.id) != used.end())
      out.push_back(found.device);
  if (out.empty()) return out;
  for (const char* shared : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})
    if (::access(shared, F_OK) == 0) out.emplace_back(shared);
  return out;
}

std::string gpu_type(std::string_view product) {
  std::string name = lower(product);
  for (const std::string_view maker : {"nvidia ", "tesla ", "geforce ", "quadro "})
    if (name.starts_with(maker)) name.erase(0, maker.size());
  for (char& c : name)
    if (c == ' ') c = '-';
  // A data centre's model is followed by how it is mounted and how much memory it has, which are told apart.
  const auto dash = name.find('-');
  const bool model = dash != std::string::npos && dash <= 5 && name.find_first_of("0123456789") < dash;
  return model ? name.substr(0, dash) : name;
}

}  // namespace falaj::execute::local
