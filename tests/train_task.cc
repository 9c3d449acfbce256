// SPDX-License-Identifier: Apache-2.0
#include "tests/train_task.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/files.h"
#include "storage/table/workspace.h"
#include "tests/program.h"

namespace falaj::tests {

namespace fs = std::filesystem;

TrainTasks::TrainTasks(std::string binary, std::string directory)
    : binary_(fs::absolute(binary).string()), directory_(std::move(directory)) {
  if (!fs::exists(binary_)) throw Error(Code::not_found, fmt::format("there is no '{}'", binary_));
}

void TrainTasks::write_rows(const std::string& sql) {
  const auto scratch = sys::open_files(directory_ + "/making");
  table::Workspace room({}, *scratch);
  const auto rows = sys::open_files(directory_ + "/inputs/data");
  const auto file = rows->create();
  room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
  room.run("SELECT setseed(0.5)");
  room.run(fmt::format("COPY ({}) TO 'out' (FORMAT parquet, ROW_GROUP_SIZE 20480)", sql));
  file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
}

void TrainTasks::write_recipe(const std::string& json) {
  sys::open_files(directory_ + "/inputs/training")->write_all("text", as_bytes(json));
}

std::uint64_t TrainTasks::row_bytes() const { return fs::file_size(directory_ + "/inputs/data/rows.parquet"); }

std::string TrainTasks::at(const std::string& where, const std::string& name) const {
  return fmt::format("{}/{}/{}", directory_, where, name);
}

std::unique_ptr<sys::Child> TrainTasks::start(const std::string& where, const How& how) {
  fs::create_directories(at(where, "home"));
  sys::Command command;
  command.argv = how.before;
  command.argv.push_back(binary_);
  command.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                         "FALAJ_INPUTS=" + directory_ + "/inputs",
                         "FALAJ_OUTPUTS=" + at(where, "outputs"),
                         "FALAJ_CHECKPOINT_DIR=" + at(where, "checkpoints"),
                         "FALAJ_METRICS=" + at(where, "metrics.jsonl"),
                         "FALAJ_RUN_ID=r1",
                         "FALAJ_JOB_ID=j1",
                         fmt::format("FALAJ_ATTEMPT={}", how.attempt),
                         fmt::format("FALAJ_MEMORY_BYTES={}", how.memory_bytes),
                         fmt::format("FALAJ_CPUS={}", how.cpus),
                         "HOME=" + at(where, "home"),
                         fmt::format("RANK={}", how.rank),
                         fmt::format("WORLD_SIZE={}", how.ranks),
                         "MASTER_ADDR=127.0.0.1",
                         fmt::format("MASTER_PORT={}", how.port)};
  command.stdout_file = command.stderr_file = at(where, fmt::format("log-{}", how.rank));
  return processes_.start(command);
}

void TrainTasks::forget(const std::string& where) { fs::remove_all(directory_ + "/" + where); }

std::string TrainTasks::log(const std::string& where, std::size_t rank) const {
  return read_text(at(where, fmt::format("log-{}", rank)));
}

std::string TrainTasks::model(const std::string& where) const {
  return read_text(at(where, "outputs/model/model.onnx"));
}

int free_port() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw Error(Code::unavailable, "there is no free port");
  return ntohs(at.sin_port);
}

}  // namespace falaj::tests
