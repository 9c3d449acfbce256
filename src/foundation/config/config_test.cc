// SPDX-License-Identifier: Apache-2.0
#include "foundation/config/config.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/config/secret.h"

namespace falaj::config {

struct Http {
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  bool tls = false;
};
struct Limits {
  std::int64_t body_bytes = 1 << 20;
  std::int64_t idle_us = 30'000'000;
  double ratio = 0.5;
  std::vector<std::string> zones = {"here"};
};
struct Whole {
  std::string name;
  std::string level = "info";
  Http http;
  Limits limits;
  std::string root_key;
  std::optional<std::string> motto;
};

}  // namespace falaj::config

namespace falaj {
template <>
struct Shape<config::Http> {
  using T = config::Http;
  static constexpr std::string_view name = "Http";
  static Fields fields() {
    return {field("host", &T::host, "Where it listens."), field("port", &T::port, "The port.").range(0, 65535),
            field("tls", &T::tls, "Whether it speaks TLS.")};
  }
};
template <>
struct Shape<config::Limits> {
  using T = config::Limits;
  static constexpr std::string_view name = "Limits";
  static Fields fields() {
    return {field("body_bytes", &T::body_bytes, "Largest body.").bytes().range(1024, 1 << 30),
            field("idle", &T::idle_us, "Longest silence.").duration().range(1'000, 3'600'000'000),
            field("ratio", &T::ratio, "A ratio."), field("zones", &T::zones, "The zones.").length(1, 3)};
  }
};
constexpr std::string_view kLevels[] = {"debug", "info", "warn"};
template <>
struct Shape<config::Whole> {
  using T = config::Whole;
  static constexpr std::string_view name = "Whole";
  static Fields fields() {
    return {field("name", &T::name, "What it is called.").required().text({is_name, kNameRule}),
            field("level", &T::level, "What is logged.").one_of(kLevels),
            field("http", &T::http, ""),
            field("limits", &T::limits, ""),
            field("root_key", &T::root_key, "The root key.").secret(),
            field("motto", &T::motto, "Shown to people.")};
  }
  static void check(const T& t, Faults& faults) {
    if (t.http.host != "127.0.0.1" && !t.http.tls)
      faults.push_back({"http.tls", "must be true when listening beyond loopback"});
  }
};
}  // namespace falaj

namespace falaj::config {
namespace {

Faults faults_of(const Sources& sources) {
  try {
    load<Whole>(sources);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.faults();
  }
  return {};
}

TEST(Config, LaterSourcesWin) {
  Sources sources{.file_name = "falaj.yaml", .file_text = "name: one\n"};
  EXPECT_EQ(load<Whole>(sources).http.port, 8080);
  sources.file_text += "http:\n  port: 1\n  tls: true\n";
  EXPECT_EQ(load<Whole>(sources).http.port, 1);
  sources.environment = {"HOME=/", "FALAJ_HTTP_PORT=2", "PORT=9"};
  EXPECT_EQ(load<Whole>(sources).http.port, 2);
  sources.overrides = {"http.port=3", "http.port=4"};
  const auto whole = load<Whole>(sources);
  EXPECT_EQ(whole.http.port, 4);
  EXPECT_TRUE(whole.http.tls);
  EXPECT_EQ(whole.name, "one");
}

TEST(Config, ReadsEveryKindFromText) {
  const auto whole = load<Whole>(
      {.environment = {"FALAJ_NAME=42", "FALAJ_LIMITS_IDLE=15m", "FALAJ_LIMITS_ZONES=[a, b]", "FALAJ_MOTTO="},
       .overrides = {"limits.body_bytes=64KiB", "limits.ratio=1", "http.tls=true", "http.host=a=b"}});
  EXPECT_EQ(whole.name, "42");
  EXPECT_EQ(whole.limits.idle_us, 900'000'000);
  EXPECT_EQ(whole.limits.zones, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(whole.limits.body_bytes, 65536);
  EXPECT_EQ(whole.limits.ratio, 1.0);
  EXPECT_TRUE(whole.http.tls);
  EXPECT_EQ(whole.http.host, "a=b");
  EXPECT_EQ(whole.motto, "");
}

TEST(Config, ReportsAllFaultsWithTheirSources) {
  const auto faults = faults_of({.file_name = "falaj.yaml",
                                 .file_text = "level: loud\nhttp:\n  prot: 1\nlimits:\n  zones: [a, b, c, 5]\n",
                                 .environment = {"FALAJ_HTTP_PORT=x", "FALAJ_HTTP_HOTS=y"},
                                 .overrides = {"limits.idel=1s", "limits.idle=never", "nonsense", "limits.ratio=["}});
  const auto has = [&](const std::string& where, const std::string& part) {
    for (const auto& f : faults)
      if (f.where == where && f.what.find(part) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(has("name", "required, but missing (give it in the file, in FALAJ_NAME or with --set name=...)"));
  EXPECT_TRUE(has("level", "(falaj.yaml:1)"));
  EXPECT_TRUE(has("http.prot", "did you mean 'port'? (falaj.yaml:3)"));
  EXPECT_TRUE(has("limits.zones", "1 to 3 entries, not 4 (falaj.yaml:5)"));
  EXPECT_TRUE(has("limits.zones[3]", "must be text, not a number (falaj.yaml:5)"));
  EXPECT_TRUE(has("http.port", "must be a whole number, not text (FALAJ_HTTP_PORT)"));
  EXPECT_TRUE(has("FALAJ_HTTP_HOTS", "did you mean 'FALAJ_HTTP_HOST'?"));
  EXPECT_TRUE(has("limits.idel", "did you mean 'limits.idle'? (--set)"));
  EXPECT_TRUE(has("limits.idle", "a duration such as"));
  EXPECT_TRUE(has("nonsense", "must be section.key=value (--set)"));
  EXPECT_TRUE(has("limits.ratio", "(--set)"));
  EXPECT_EQ(faults.size(), 11U);
}

TEST(Config, RefusesAFileThatIsNotOneMap) {
  EXPECT_EQ(faults_of({.file_name = "f", .file_text = "- a\n", .overrides = {"name=x"}}),
            (Faults{{"f", "must be one map of sections"}}));
  EXPECT_EQ(faults_of({.file_name = "f", .file_text = "name: a\n---\nname: b\n", .overrides = {"name=x"}}).size(), 1U);
  EXPECT_EQ(faults_of({.file_name = "f", .file_text = "name: [\n", .overrides = {"name=x"}}).size(), 1U);
  EXPECT_EQ(faults_of({.file_name = "f", .file_text = "http: 5\n", .overrides = {"name=x", "http.port=1"}}),
            (Faults{{"http", "must be a map, not a number (f:1)"}}));
}

TEST(Config, TakesAnEmptySection) {
  EXPECT_EQ(load<Whole>({.file_text = "name: x\nhttp:\n  # port: 1\n"}).http.port, 8080);
}

TEST(Config, ChecksSettingsTogether) {
  EXPECT_EQ(faults_of({.file_name = "f", .file_text = "name: x\nhttp: {host: 0.0.0.0, tls: false}\n"}),
            (Faults{{"http.tls", "must be true when listening beyond loopback (f:2)"}}));
}

TEST(Config, LetsOnlyReferencesStandForSecrets) {
  EXPECT_EQ(load<Whole>({.overrides = {"name=x", "root_key=file:/run/key"}}).root_key, "file:/run/key");
  for (const auto* bad : {"hunter2", "file:", "env:", "FILE:x"}) {
    const auto faults = faults_of({.overrides = {"name=x", "root_key=" + std::string(bad)}});
    ASSERT_EQ(faults.size(), 1U) << bad;
    EXPECT_EQ(faults[0].what.find("hunter2"), std::string::npos);
  }
}

TEST(Config, AVariableThatASecretNamesIsNoUnknownSetting) {
  EXPECT_TRUE(
      faults_of({.environment = {"FALAJ_KEY_TEXT=s", "FALAJ_ROOT_KEY=env:FALAJ_KEY_TEXT", "FALAJ_NAME=x"}}).empty());
  EXPECT_EQ(faults_of({.environment = {"FALAJ_KEY_TEXT=s", "FALAJ_NAME=x"}}).size(), 1U);
  EXPECT_TRUE(
      faults_of({.environment = {"FALAJ_KEY_TEXT=s", "FALAJ_NAME=x"}, .other_variables = {"FALAJ_KEY_TEXT"}}).empty());
}

TEST(Config, ExplainsEverySettingAndNoSecret) {
  const auto table = explain<Whole>({.file_name = "falaj.yaml",
                                     .file_text = "name: x\nlimits:\n  idle: 1m\n",
                                     .environment = {"FALAJ_LEVEL=warn"},
                                     .overrides = {"root_key=env:THE_KEY"}});
  ASSERT_EQ(table.size(), 11U);
  const auto row = [&](std::string_view key) {
    for (const auto& r : table)
      if (r.key == key) return r.value + "|" + r.standard + "|" + r.source + "|" + r.allowed;
    return std::string("missing");
  };
  EXPECT_EQ(row("level"), "warn|info|FALAJ_LEVEL|debug, info, warn");
  EXPECT_EQ(row("http.port"), "8080|8080|default|0 to 65535");
  EXPECT_EQ(row("http.tls"), "false|false|default|true, false");
  EXPECT_EQ(row("limits.idle"), format_duration_us(60'000'000) + "|" + format_duration_us(30'000'000) +
                                    "|falaj.yaml:3|" + format_duration_us(1000) + " to " +
                                    format_duration_us(3'600'000'000));
  EXPECT_EQ(row("limits.zones"), "[\"here\"]|[\"here\"]|default|1 to 3 entries");
  EXPECT_EQ(row("root_key"), "(set)|(not set)|--set|file:PATH or env:NAME");
  EXPECT_EQ(row("motto"), "||default|");
}

TEST(Secret, IsReadFromWhereTheReferenceSays) {
  const auto read = [](const std::string& path) {
    return path == "/run/key" ? std::string("s3cret\n") : throw Error(Code::not_found, "no file");
  };
  EXPECT_EQ(resolve_secret("file:/run/key", {}, read), "s3cret");
  EXPECT_EQ(resolve_secret("env:B", {"A=1", "B=x=y", "BB=2"}, read), "x=y");
  EXPECT_ERROR(resolve_secret("env:C", {"A=1"}, read), Code::not_found);
  EXPECT_ERROR(resolve_secret("file:/other", {}, read), Code::not_found);
  EXPECT_ERROR(resolve_secret("s3cret", {}, read), Code::invalid);
}

}  // namespace
}  // namespace falaj::config
