// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/policy.h"

#include <random>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::iam {
namespace {

Principal ada(std::vector<std::string> groups = {}) { return {Principal::Kind::user, "ada", "", std::move(groups)}; }
const Scope kProject = Scope::parse("/t/acme/p/flights");
const Scope kBlob = Scope::parse("/t/acme/p/flights/blob/raw/2024.parquet");

bool allows(const Policy& policy, const Principal& who, std::string_view action, const Scope& resource) {
  return decide(policy, who, action, resource).allowed;
}

TEST(Scope, ReadsItsPartsAndItsChain) {
  EXPECT_EQ(kBlob.tenant(), "acme");
  EXPECT_EQ(kBlob.project(), "flights");
  EXPECT_EQ(kBlob.kind(), "blob");
  EXPECT_EQ(kBlob.name(), "raw/2024.parquet");
  const auto chain = kBlob.chain();
  EXPECT_EQ(std::vector<std::string_view>(chain.begin(), chain.end()),
            (std::vector<std::string_view>{"/", "/t/acme", "/t/acme/p/flights", kBlob.str()}));
  const auto zone = Scope::parse("/zone/uae-north");
  EXPECT_EQ(zone.kind(), "zone");
  EXPECT_EQ(zone.tenant(), "");
  EXPECT_EQ(Scope::of("acme", "", "group", "ml").str(), "/t/acme/group/ml");
  EXPECT_EQ(Scope::of("acme", "flights", "blob", "raw/2024.parquet"), kBlob);
  EXPECT_EQ(relative("/", "/t/acme"), "t/acme");
  EXPECT_EQ(relative("/t/acme", "/t/acme"), "");
  EXPECT_EQ(relative("/t/acme", "/t/acme/p/x"), "p/x");
}

TEST(Scope, ContainsOnlyWhatIsBelowIt) {
  EXPECT_TRUE(Scope().contains(kBlob));
  EXPECT_TRUE(kProject.contains(kProject));
  EXPECT_FALSE(kBlob.contains(kProject));
  EXPECT_FALSE(Scope::parse("/t/ac").contains(Scope::parse("/t/acme")));
  EXPECT_FALSE(Scope::parse("/t/acme/p/f").contains(kProject));
  // A thing is not the parent of another whose name begins alike.
  EXPECT_FALSE(Scope::parse("/t/acme/p/flights/blob/raw").contains(kBlob));
}

TEST(Scope, RefusesEverythingElse) {
  for (const auto* bad : {"",
                          "t/acme",
                          "//",
                          "/t",
                          "/t/",
                          "/t/Acme",
                          "/t/acme/",
                          "/t/acme/p",
                          "/t/acme/p/",
                          "/p/x",
                          "/t/acme/p/x/",
                          "/t/acme/p/x/blob",
                          "/t/acme/p/x/blob/",
                          "/t/../p/x",
                          "/t/acme/p/..",
                          "/Zone/a",
                          "/zone",
                          "/t/acme/p/x/y/z",
                          "/zone/a\n",
                          "/zone/\xff"})
    EXPECT_ERROR(Scope::parse(bad), Code::invalid);
  EXPECT_EQ(Scope::parse("/blob/" + std::string(Scope::kPathBytesMax - 6, 'x')).name().size(),
            Scope::kPathBytesMax - 6);
  EXPECT_ERROR(Scope::parse("/blob/" + std::string(Scope::kPathBytesMax - 5, 'x')), Code::invalid);
  EXPECT_ERROR(Scope::of("", "flights", "blob", "x"), Code::invalid);
  // A name that holds separators cannot reach into another tenant or project.
  EXPECT_ERROR(Scope::of_tenant("acme/p/flights"), Code::invalid);
}

TEST(Principal, IsWrittenAndReadBack) {
  for (const auto* text : {"user/ada", "service/acme/ci", "workload/acme/01h", "certificate/node-1"})
    EXPECT_EQ(Principal::parse(text).str(), text);
  for (const auto* bad :
       {"", "ada", "user/", "user//ada", "user/acme/", "robot/x", "user/a/b/c", "user/Ada", "group/x"})
    EXPECT_ERROR(Principal::parse(bad), Code::invalid);
  EXPECT_TRUE(is_subject("group/acme/ml"));
  EXPECT_FALSE(is_subject("workload/acme/01h"));
}

TEST(Policy, DeniesByDefaultAndSaysWhy) {
  const Policy policy({}, {});
  const auto d = decide(policy, ada(), "blob.read", kBlob);
  EXPECT_FALSE(d.allowed);
  EXPECT_EQ(explain(d, ada(), "blob.read", kProject), "no role grants blob.read on /t/acme/p/flights to user/ada");
}

TEST(Policy, NamesTheBindingThatAllowed) {
  const Policy policy({}, {{"all-read", "viewer", {"user/ada"}, Scope::of_tenant("acme")}});
  const auto d = decide(policy, ada(), "blob.read", kProject);
  EXPECT_EQ(explain(d, ada(), "blob.read", kProject),
            "role viewer (binding all-read at /t/acme) allows blob.read on /t/acme/p/flights to user/ada");
  EXPECT_FALSE(allows(policy, ada(), "blob.read", Scope::parse("/t/other/p/flights")));
  EXPECT_FALSE(allows(policy, ada(), "blob.read", Scope()));
}

TEST(Policy, AForbidAboveWinsOverAnAllowBelow) {
  const std::vector<Role> roles = {{"no-delete", {{Effect::forbid, {"*.delete"}, {}, {"*"}}}}};
  const Policy policy(roles,
                      {{"mine", "admin", {"user/ada"}, kProject}, {"freeze", "no-delete", {"group/acme/ml"}, Scope()}});
  EXPECT_TRUE(allows(policy, ada(), "blob.delete", kBlob));
  const auto d = decide(policy, ada({"group/acme/ml"}), "blob.delete", kBlob);
  EXPECT_FALSE(d.allowed);
  EXPECT_EQ(d.by->name, "freeze");
  EXPECT_TRUE(allows(policy, ada({"group/acme/ml"}), "blob.write", kBlob));
}

TEST(Policy, ABindingToAMissingRoleDeniesRatherThanGuesses) {
  const Policy policy({}, {{"all", "admin", {"user/ada"}, Scope()}, {"lost", "gone", {"user/ada"}, kProject}});
  EXPECT_FALSE(allows(policy, ada(), "blob.read", kBlob));
  EXPECT_TRUE(allows(policy, ada(), "blob.read", Scope::of_tenant("acme")));
}

TEST(Policy, ABuiltInRoleCannotBeReplaced) {
  const Policy policy({{"viewer", {{Effect::allow, {"*"}, {}, {"*"}}}}}, {{"v", "viewer", {"user/ada"}, Scope()}});
  EXPECT_FALSE(allows(policy, ada(), "blob.delete", kBlob));
}

// The five roles against the actions that tell them apart.
TEST(Policy, BuiltInRolesAreWhatTheirNamesSay) {
  struct Row {
    const char* action;
    bool viewer, developer, oper, auditor, admin;
  };
  const Row rows[] = {
      {"blob.read", 1, 1, 1, 1, 1},      {"project.list", 1, 1, 1, 1, 1}, {"blob.create", 0, 1, 1, 0, 1},
      {"model.update", 0, 1, 1, 0, 1},   {"blob.delete", 0, 0, 1, 0, 1},  {"store.gc", 0, 0, 1, 0, 1},
      {"backup.create", 0, 0, 1, 0, 1},  {"audit.read", 0, 0, 0, 1, 1},   {"audit.verify", 0, 0, 0, 1, 1},
      {"secret.read", 0, 0, 0, 0, 1},    {"token.list", 0, 0, 0, 1, 1},   {"rolebinding.create", 0, 0, 0, 0, 1},
      {"project.delete", 0, 0, 0, 0, 1}, {"user.update", 0, 0, 0, 0, 1},  {"rolebinding.read", 1, 1, 1, 1, 1}};
  for (const auto& row : rows) {
    const std::pair<const char*, bool> wanted[] = {{"viewer", row.viewer},
                                                   {"developer", row.developer},
                                                   {"operator", row.oper},
                                                   {"auditor", row.auditor},
                                                   {"admin", row.admin}};
    for (const auto& [role, allowed] : wanted)
      EXPECT_EQ(allows(Policy({}, {{"b", role, {"user/ada"}, Scope()}}), ada(), row.action, kProject), allowed)
          << role << " " << row.action;
  }
}

TEST(Restriction, NarrowsButNeverWidens) {
  const std::vector<Restriction> only_read = {{{"*.read"}, kProject}};
  EXPECT_TRUE(admits({}, "blob.delete", Scope()));
  EXPECT_TRUE(admits(only_read, "blob.read", kBlob));
  EXPECT_FALSE(admits(only_read, "blob.write", kBlob));
  EXPECT_FALSE(admits(only_read, "blob.read", Scope::of_tenant("acme")));
}

// ---- a second engine, as slow and plain as can be, and random worlds to compare the two on

struct World {
  std::vector<Role> roles;
  std::vector<Binding> bindings;
  Principal who;
  std::string action;
  Scope resource;
};

bool below_or_same(const std::string& scope, const std::string& path) {
  if (scope == "/" || scope == path) return true;
  // Only tenants and projects hold things: "/t/a", "/t/a/p/b".
  const auto slashes = std::count(scope.begin(), scope.end(), '/');
  const bool holder =
      scope.starts_with("/t/") && (slashes == 2 || (slashes == 4 && scope.find("/p/") != std::string::npos));
  return holder && path.starts_with(scope + "/");
}

bool naive(const World& w) {
  bool allow = false;
  std::vector<Role> roles = w.roles;
  for (const auto& r : built_in_roles()) roles.push_back(r);
  const auto any = [](const std::vector<std::string>& patterns, const std::string& text) {
    bool hit = false;
    for (const auto& p : patterns) hit = hit || matches_glob(p, text);
    return hit;
  };
  for (const auto& b : w.bindings) {
    bool subject = false;
    for (const auto& s : b.subjects) {
      subject = subject || s == w.who.str();
      for (const auto& g : w.who.groups) subject = subject || s == g;
    }
    if (!subject || !below_or_same(b.scope.str(), w.resource.str())) continue;
    std::string rest = w.resource.str().substr(b.scope.str().size());
    if (!rest.empty() && rest[0] == '/') rest.erase(0, 1);
    bool found = false;
    for (const auto& role : roles) {
      if (role.name != b.role) continue;
      found = true;
      for (const auto& rule : role.rules) {
        if (!any(rule.actions, w.action) || any(rule.except, w.action) || !any(rule.resources, rest)) continue;
        if (rule.effect == Effect::forbid) return false;
        allow = true;
      }
    }
    if (!found) return false;
  }
  return allow;
}

class Worlds {
 public:
  explicit Worlds(unsigned seed) : rng_(seed) {}
  std::size_t below(std::size_t n) { return rng_() % n; }
  template <class T, std::size_t N>
  const T& pick(const T (&from)[N]) {
    return from[below(N)];
  }
  std::string subject() {
    static const std::string kSubjects[] = {"user/ada", "user/bob", "service/acme/ci", "group/ops", "group/acme/ml"};
    return pick(kSubjects);
  }
  Scope scope() {
    static const std::string kScopes[] = {"/",
                                          "/t/acme",
                                          "/t/ac",
                                          "/t/acme/p/f",
                                          "/t/acme/p/fl",
                                          "/t/acme/p/f/blob/a",
                                          "/t/acme/p/f/blob/a/b",
                                          "/zone/z",
                                          "/t/acme/group/ml",
                                          "/t/other/p/f"};
    return Scope::parse(pick(kScopes));
  }
  std::string action() {
    static const std::string kActions[] = {"blob.read",  "blob.write",  "project.read",
                                           "audit.read", "role.create", "blob.delete"};
    return pick(kActions);
  }
  Rule rule(Effect effect) {
    static const std::string kPatterns[] = {"*", "blob.*", "*.read", "project.read", "audit.*", "*.cre*te"};
    static const std::string kResources[] = {"*", "blob/*", "p/f*", "", "*/a", "t/acme/*"};
    Rule r{effect, {pick(kPatterns)}, {}, {pick(kResources)}};
    if (below(3) == 0) r.actions.push_back(pick(kPatterns));
    if (below(4) == 0) r.except.push_back(pick(kPatterns));
    return r;
  }
  Binding binding(std::size_t roles) {
    static const std::string kBuiltIn[] = {"viewer", "admin", "developer", "missing"};
    Binding b{"b" + std::to_string(below(1000)), "", {}, scope()};
    b.role = roles > 0 && below(4) != 0 ? "r" + std::to_string(below(roles)) : pick(kBuiltIn);
    for (std::size_t i = 0; i <= below(2); ++i) b.subjects.push_back(subject());
    return b;
  }
  World world() {
    World w;
    for (std::size_t i = 0, n = below(4); i < n; ++i) {
      Role role{"r" + std::to_string(i), {}};
      for (std::size_t k = 0, m = below(3); k < m; ++k)
        role.rules.push_back(rule(below(4) == 0 ? Effect::forbid : Effect::allow));
      w.roles.push_back(role);
    }
    for (std::size_t i = 0, n = below(8); i < n; ++i) w.bindings.push_back(binding(w.roles.size()));
    static const std::string kWho[] = {"user/ada", "service/acme/ci"};
    w.who = Principal::parse(pick(kWho));
    if (below(2) == 0) w.who.groups.push_back("group/ops");
    if (below(2) == 0) w.who.groups.push_back("group/acme/ml");
    w.action = action();
    w.resource = scope();
    return w;
  }

 private:
  std::mt19937 rng_;
};

bool fast(const World& w) { return allows(Policy(w.roles, w.bindings), w.who, w.action, w.resource); }

constexpr unsigned kSeed = 20240611;

TEST(Policy, AgreesWithTheNaiveEngineOnRandomWorlds) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Worlds worlds(kSeed);
  int allowed = 0;
  for (int i = 0; i < repeats(20'000); ++i) {
    const auto w = worlds.world();
    ASSERT_EQ(fast(w), naive(w)) << "world " << i << ": " << w.who.str() << " " << w.action << " " << w.resource.str();
    allowed += fast(w);
  }
  EXPECT_GT(allowed, repeats(1000));  // or the worlds prove little
  EXPECT_LT(allowed, repeats(19'000));
}

TEST(Policy, AddingAnAllowNeverTakesAwayAndAddingAForbidNeverGives) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Worlds worlds(kSeed + 1);
  for (int i = 0; i < repeats(5'000); ++i) {
    const auto w = worlds.world();
    for (const auto effect : {Effect::allow, Effect::forbid}) {
      auto more = w;
      more.roles.push_back({"added", {worlds.rule(effect)}});
      auto binding = worlds.binding(0);
      binding.role = "added";
      more.bindings.push_back(binding);
      if (effect == Effect::allow)
        ASSERT_LE(fast(w), fast(more)) << "world " << i;
      else
        ASSERT_GE(fast(w), fast(more)) << "world " << i;
    }
  }
}

TEST(Restriction, OfATokenOnlyEverRemoves) {
  Worlds worlds(kSeed + 2);
  for (int i = 0; i < 2'000; ++i) {
    const auto w = worlds.world();
    const std::vector<Restriction> one = {{{worlds.action(), "blob.*"}, worlds.scope()}};
    auto two = one;
    two.push_back({{"*"}, worlds.scope()});
    ASSERT_LE(admits(one, w.action, w.resource), admits(two, w.action, w.resource));
  }
}

}  // namespace
}  // namespace falaj::iam
