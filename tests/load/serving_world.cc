// SPDX-License-Identifier: Apache-2.0
#include "tests/load/serving_world.h"

#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLookUs = 2'000;
constexpr sys::Micros kPatience = std::chrono::seconds(60);
const std::string kMlflow = "/mlflow/default/default/api/2.0/";

std::vector<std::string> arguments_with(std::vector<std::string> more) {
  // All load is of one principal, whom the default would hold to its share.
  std::vector<std::string> out{"--set", "log_level=error", "--set", "rates.calls_per_second=1000000"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// The process that has this one as its parent; 0: there is none.
int child_of(int parent) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    const auto stat = read_text(entry.path().string() + "/stat");
    const auto end = stat.rfind(')');
    if (end == std::string::npos) continue;
    const auto words = split(std::string_view(stat).substr(end + 2), ' ');
    if (words.size() > 1 && parse_int(words[1]) == parent) return static_cast<int>(*pid);
  }
  return 0;
}

}  // namespace

ServingWorld::ServingWorld(const std::string& binary, std::vector<std::string> more_arguments)
    : program_(binary, directory_ / "data", directory_ / "log", arguments_with(std::move(more_arguments))),
      token_(program_.token()),
      api_(client::Target{program_.url(), token_, "", ""}) {}

void ServingWorld::register_version(const std::string& model, const Bytes& bytes) {
  const auto run = api_.post(kMlflow + "mlflow/runs/create", json::object{{"experiment_id", "0"}});
  const auto id = std::string(run.at("run").at("info").at("run_id").as_string());
  bool sent = false;
  api_.upload(
      kMlflow + fmt::format("mlflow-artifacts/artifacts/0/{}/artifacts/model/model.onnx", id), {},
      [&]() -> Bytes { return std::exchange(sent, true) ? Bytes() : bytes; }, bytes.size(), net::Method::put);
  try {
    api_.post(kMlflow + "mlflow/registered-models/create", json::object{{"name", model}});
  } catch (const Error& e) {
    if (e.code() != Code::exists && e.code() != Code::invalid) throw;
  }
  api_.post(kMlflow + "mlflow/model-versions/create",
            json::object{{"name", model}, {"source", fmt::format("runs:/{}/model", id)}, {"run_id", id}});
}

void ServingWorld::apply(const std::vector<Declared>& endpoints) {
  std::string text;
  for (const auto& endpoint : endpoints)
    text += fmt::format(
        "---\n{{apiVersion: falaj/v1, kind: Endpoint, metadata: {{name: {}, tenant: default, project: default}}, spec: "
        "{{{}}}}}\n",
        endpoint.name, endpoint.spec);
  api_.post("/v1/apply", json::object{{"sources", json::array{json::object{{"file", "world"}, {"text", text}}}},
                                      {"dry_run", false}});
}

json::value ServingWorld::view(const std::string& endpoint) {
  return api_.get("/v1/serving/endpoints/" + endpoint, project_);
}

void ServingWorld::until(const std::string& what, const std::function<bool()>& holds) {
  const auto end = clock_.now() + kPatience;
  while (!holds()) {
    if (clock_.now() > end) throw Error(Code::deadline, "waited too long until " + what);
    pause(kLookUs);
  }
}

void ServingWorld::wait_ready(const std::string& endpoint) {
  until("endpoint " + endpoint + " is ready", [&] { return view(endpoint).at("ready").as_bool(); });
}

client::Target ServingWorld::serving(const std::string& endpoint, const std::string& token) {
  return {std::string(view(endpoint).at("urls").at(0).as_string()), token, "", ""};
}

std::uint16_t ServingWorld::port_of(const std::string& endpoint) {
  const auto url = serving(endpoint, "").url;
  return static_cast<std::uint16_t>(parse_int(url.substr(url.rfind(':') + 1)).value_or(0));
}

std::string ServingWorld::request(std::string_view path, std::string_view body, std::string_view more_headers) const {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n{}Content-Length: {}\r\n\r\n{}", path, token_,
      more_headers, body.size(), body);
}

int ServingWorld::supervisor() const {
  return static_cast<int>(parse_int(trim(read_text(directory_ / "data/serve/lock"))).value_or(0));
}
int ServingWorld::worker() const { return child_of(supervisor()); }

}  // namespace falaj::tests
