// SPDX-License-Identifier: Apache-2.0
#include "tests/load/feature_world.h"

#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::tests {
namespace {

std::string declared() {
  std::string columns, features;
  for (std::size_t i = 0; i < kFeatures; ++i) {
    columns += fmt::format(", {{name: f{}, type: float64}}", i);
    features += fmt::format("{}{{name: f{}}}", i ? ", " : "", i);
  }
  const auto resource = [](const char* kind, const char* name, const std::string& spec) {
    return fmt::format(
        "---\napiVersion: falaj/v1\nkind: {}\nmetadata: {{tenant: default, project: default, name: {}}}\nspec: {}\n",
        kind, name, spec);
  };
  return resource("Dataset", "rows",
                  "{columns: [{name: at, type: timestamp}, {name: k, type: text}, {name: n, type: int64}" + columns +
                      "], time: at}") +
         resource("Entity", "customer", "{key: [{name: k, type: text}]}") +
         resource("FeatureView", "row", "{entity: customer, dataset: rows, time: at, features: [" + features + "]}") +
         resource("FeatureView", "sums",
                  "{entity: customer, dataset: rows, time: at, tile: 1h, aggregates: [{name: sum_n, aggregate: sum, "
                  "of: n, window: 24h}, {name: sum_f0, aggregate: sum, of: f0, window: 24h}]}") +
         resource("FeatureService", "fifty", "{features: ['row:*']}") +
         resource("FeatureService", "all", "{features: ['row:*', 'sums:*']}");
}

}  // namespace

FeatureWorld::FeatureWorld(const std::string& binary, std::size_t entities, std::vector<std::string> more_arguments)
    : entities_(entities),
      program_(
          binary, directory_ / "data", directory_ / "log",
          [&] {
            // All load is of one principal, whom the default would hold to its share.
            std::vector<std::string> arguments{"--set", "log_level=error", "--set", "rates.calls_per_second=1000000"};
            arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
            return arguments;
          }()),
      token_(program_.token()) {
  client::ApiClient api(target());
  api.post("/v1/apply", {{"sources", {{{"file", "world"}, {"text", declared()}}}}});
  ingest(api);
  for (const char* view : {"row", "sums"}) api.post("/v1/features/materialize", json::object{{"view", view}}, project_);
}

void FeatureWorld::ingest(client::ApiClient& api) {
  std::string text = "at,k,n";
  for (std::size_t i = 0; i < kFeatures; ++i) text += fmt::format(",f{}", i);
  const auto at = format_time(clock_.wall().count() - 3'600'000'000);
  for (std::size_t e = 0; e < entities_; ++e) {
    text += fmt::format("\n{},{},0", at, entity(e));
    for (std::size_t i = 0; i < kFeatures; ++i) text += fmt::format(",{}", i);
  }
  text += '\n';
  const auto id = std::string(api.post("/v1/datasets/rows/uploads", json::object{}, project_).at("id").as_string());
  std::size_t sent = 0;
  api.upload(
      "/v1/datasets/rows/uploads/" + id + "/parts/0", project_,
      [&] {
        const auto piece = as_bytes(text).subspan(sent, std::min<std::size_t>(text.size() - sent, 1 << 20));
        sent += piece.size();
        return Bytes(piece.begin(), piece.end());
      },
      text.size(), net::Method::put);
  api.post("/v1/datasets/rows/uploads/" + id + "/finish", json::object{{"format", "csv"}, {"mode", "append"}},
           project_);
}

std::uint16_t FeatureWorld::port() const {
  const auto& url = program_.url();
  return static_cast<std::uint16_t>(parse_int(url.substr(url.rfind(':') + 1)).value_or(0));
}

client::Target FeatureWorld::target() const {
  client::Target target;
  target.url = program_.url();
  target.token = program_.token();
  return target;
}

json::object FeatureWorld::row(std::size_t entity_number, std::int64_t n, std::int64_t at_us) {
  json::object row{{"at", format_time(at_us)}, {"k", entity(entity_number)}, {"n", n}};
  for (std::size_t i = 0; i < kFeatures; ++i) row["f" + std::to_string(i)] = n + static_cast<std::int64_t>(i);
  return row;
}

std::string FeatureWorld::request(std::string_view path, std::string_view body) const {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n"
      "Content-Length: {}\r\n\r\n{}",
      path, token_, body.size(), body);
}

std::string FeatureWorld::read_request(std::string_view service, std::span<const std::size_t> entities) const {
  std::string body = fmt::format(R"({{"service":"{}","entities":{{"k":[)", service);
  for (std::size_t i = 0; i < entities.size(); ++i) body += fmt::format("{}\"{}\"", i ? "," : "", entity(entities[i]));
  return request("/v1/features/get?scope=/t/default/p/default", body + "]}}");
}

double peak_mb_of(int pid) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmHWM:"))
      return static_cast<double>(parse_int(trim(line.substr(6, line.find("kB") - 6))).value_or(0)) / 1e3;
  return 0;
}

double cpu_seconds_of(int pid) {
  const auto text = read_text(fmt::format("/proc/{}/stat", pid));
  const auto fields = split(std::string_view(text).substr(text.rfind(')') + 2), ' ');
  return static_cast<double>(parse_int(fields[11]).value_or(0) + parse_int(fields[12]).value_or(0)) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::string falaj_beside_this() {
  char self[PATH_MAX] = {};
  CHECK(::readlink("/proc/self/exe", self, sizeof self - 1) > 0, "who am I");
  const auto program = std::filesystem::path(self).parent_path().parent_path() / "bin" / "falaj";
  if (!std::filesystem::exists(program)) throw Error(Code::not_found, "build the target falaj first");
  return program;
}

std::string check_answer(std::string_view body, std::size_t entities, bool with_sums,
                         std::span<const std::int64_t> least) {
  constexpr std::string_view kValues = "\"values\":[";
  const auto columns = kFeatures + (with_sums ? 2 : 0);
  std::vector<double> first(entities);  // f0 of each entity; past the features the first sum
  std::size_t at = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    at = body.find(kValues, at);
    if (at == std::string_view::npos) return fmt::format("column {} is missing: {}", c, body.substr(0, 200));
    at += kValues.size();
    for (std::size_t e = 0; e < entities; ++e) {
      double value = 0;
      const auto read = std::from_chars(body.data() + at, body.data() + body.size(), value);
      if (read.ec != std::errc()) return fmt::format("no number in column {}: {}", c, body.substr(at, 100));
      at = static_cast<std::size_t>(read.ptr - body.data()) + 1;
      const bool begins = c == 0 || c == kFeatures;
      if (begins) first[e] = value;
      if (c == 0 && value < static_cast<double>(least[e]))
        return fmt::format("a read shows {}, {} was acknowledged before", value, least[e]);
      const auto apart = c < kFeatures ? static_cast<double>(c) : 0;
      if (!begins && value != first[e] + apart)
        return fmt::format("half a row: column {} is {}, the first one {}", c, value, first[e]);
    }
  }
  return "";
}

void claim(const std::string& what, double ours, std::string_view unit, std::string_view against, double limit,
           double ratio, double goal, std::string_view better) {
  std::puts(json::serialize(json::object{{"claim", what},
                                         {"ours", ours},
                                         {"unit", unit},
                                         {"against", against},
                                         {"limit", limit},
                                         {"ratio", ratio},
                                         {"goal", goal},
                                         {"better", better}})
                .c_str());
  std::fflush(stdout);
}

}  // namespace falaj::tests
