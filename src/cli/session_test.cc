// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::cli {
namespace {

// A home of its own, and none of the caller's variables.
class Sessions : public testing::Test {
 protected:
  Sessions() {
    for (const char* name :
         {"FALAJ_URL", "FALAJ_TOKEN", "FALAJ_CONFIG", "FALAJ_TENANT", "FALAJ_PROJECT", "FALAJ_CA_FILE"})
      unsetenv(name);
    setenv("HOME", home_.path().c_str(), 1);
  }
  std::string contexts_file() const { return home_ / ".config/falaj/contexts.json"; }
  // Status of a command line, with commands that fail as told.
  int run_line(std::vector<std::string> words) {
    std::vector<char*> argv;
    words.insert(words.begin(), "falaj");
    for (auto& word : words) argv.push_back(word.data());
    sys::SimClock clock;
    Session session(clock, stdout);
    return run(static_cast<int>(argv.size()), argv.data(), session, [](CLI::App& app) {
      app.add_subcommand("config", "");
      app.add_subcommand("refuse", "")->callback([] { throw Error(Code::denied, "no \x1b[31m"); });
      app.add_subcommand("several", "")->callback([] {
        throw Error(Code::invalid, "two things", {{"a", "is wrong"}, {"b", "too"}});
      });
      app.add_subcommand("fail", "")->callback([] { throw std::runtime_error("unforeseen"); });
      app.add_subcommand("work", "")->callback([] {});
    });
  }
  sys::TempDir home_;
  sys::SimClock clock_;
};

TEST_F(Sessions, KeepContextsInAFileOnlyTheOwnerMayRead) {
  EXPECT_TRUE(Contexts::load().all.empty());
  Contexts contexts;
  contexts.put({"work", "https://falaj.example", "falaj_secret", "", "acme", "flights"});
  contexts.put({"home", "http://127.0.0.1:8470", "", "", "", ""});
  contexts.put({"work", "https://other.example", "falaj_secret", "ca.pem", "acme", "flights"});
  contexts.current = "work";
  contexts.save();
  struct stat info {};
  ASSERT_EQ(::stat(contexts_file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const auto loaded = Contexts::load();
  EXPECT_EQ(loaded.current, "work");
  ASSERT_EQ(loaded.all.size(), 2U);
  ASSERT_NE(loaded.find("work"), nullptr);
  EXPECT_EQ(loaded.find("work")->url, "https://other.example");
  EXPECT_EQ(loaded.find("work")->token, "falaj_secret");
  EXPECT_EQ(loaded.find("nowhere"), nullptr);
}

TEST_F(Sessions, RefuseAContextsFileThatIsNotOne) {
  std::filesystem::create_directories(home_ / ".config/falaj");
  std::ofstream(contexts_file()) << R"({"current": 7})";
  EXPECT_ERROR(Contexts::load(), Code::invalid);
  std::ofstream(contexts_file()) << "{";
  EXPECT_ERROR(Contexts::load(), Code::invalid);
}

TEST_F(Sessions, ChooseOptionThenEnvironmentThenContext) {
  Contexts contexts;
  contexts.put({"work", "http://context", "from-context", "", "acme", "flights"});
  contexts.current = "work";
  contexts.save();
  {
    Session session(clock_, stdout);
    EXPECT_EQ(session.api().target().url, "http://context");
    EXPECT_EQ(session.project_scope(), "/t/acme/p/flights");
  }
  setenv("FALAJ_URL", "http://environment", 1);
  setenv("FALAJ_TOKEN", "from-environment", 1);
  {
    Session session(clock_, stdout);
    EXPECT_EQ(session.api().target().url, "http://environment");
    EXPECT_EQ(session.api().target().token, "from-environment");
  }
  {
    Session session(clock_, stdout);
    session.context = "work";  // asked for by name, so it wins over the environment
    EXPECT_EQ(session.api().target().url, "http://context");
  }
  {
    Session session(clock_, stdout);
    session.url = "http://option";
    session.tenant = "other";
    EXPECT_EQ(session.api().target().url, "http://option");
    EXPECT_EQ(session.scope(), "/t/other/p/flights");
  }
  Session session(clock_, stdout);
  session.context = "nowhere";
  EXPECT_ERROR(session.api(), Code::not_found);
}

TEST_F(Sessions, UseThisMachinesOwnTokenWithoutAnyOther) {
  std::filesystem::create_directories(home_ / ".falaj");
  std::ofstream(home_ / ".falaj/admin.token") << "falaj_own\n";
  Session session(clock_, stdout);
  EXPECT_EQ(session.api().target().token, "falaj_own");
  EXPECT_EQ(session.api().target().url, "http://127.0.0.1:8470");
}

TEST_F(Sessions, NeedBothATenantAndAProject) {
  Session session(clock_, stdout);
  EXPECT_EQ(session.scope(), "/");
  EXPECT_ERROR(session.project_scope(), Code::invalid);
  session.project = "flights";
  EXPECT_ERROR(session.scope(), Code::invalid);
  session.tenant = "acme";
  EXPECT_EQ(session.project_scope(), "/t/acme/p/flights");
}

TEST_F(Sessions, WriteAResultWholeOrNotAtAll) {
  const std::string path = home_ / "result";
  std::ofstream(path) << "before";
  const auto content = [&] {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  {
    ResultFile abandoned(path);
    abandoned.write(as_bytes(std::string_view("half")));
  }
  EXPECT_EQ(content(), "before");
  {
    ResultFile kept(path);
    kept.write(as_bytes(std::string_view("all of it")));
    kept.keep();
  }
  EXPECT_EQ(content(), "all of it");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_ERROR(ResultFile(home_ / "no/such/place"), Code::unavailable);
}

TEST_F(Sessions, EndWithTheStatusOfTheError) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_line({"refuse"}), 5);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: denied: no ?[31m\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_line({"several"}), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: invalid: two things\n  a: is wrong\n  b: too\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_line({"several", "-o", "json"}), 2);
  EXPECT_EQ(parse_json(testing::internal::GetCapturedStderr()),
            parse_json(R"({"error": {"code": "invalid", "message": "two things",
                           "details": [{"field": "a", "problem": "is wrong"}, {"field": "b", "problem": "too"}]}})"));
  EXPECT_EQ(run_line({"fail"}), 1);
  EXPECT_EQ(run_line({"work", "--nonsense"}), 2);
  EXPECT_EQ(run_line({}), 2);
  EXPECT_EQ(run_line({"work"}), 0);
  EXPECT_EQ(run_line({"--help"}), 0);
}

}  // namespace
}  // namespace falaj::cli
