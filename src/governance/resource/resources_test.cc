// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/resources.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "governance/resource/selector.h"
#include "governance/resource/testing.h"

namespace falaj::resource {
namespace {

constexpr std::string_view kBase = R"(
apiVersion: falaj/v1
kind: Project
metadata: {tenant: acme, name: flights}
spec: {zone: uae}
---
apiVersion: falaj/v1
kind: Tenant
metadata: {name: acme}
spec: {zones: [uae, eu]}
---
apiVersion: falaj/v1
kind: Zone
metadata: {name: uae}
spec: {residency: AE}
---
apiVersion: falaj/v1
kind: Zone
metadata: {name: eu}
spec: {residency: EU}
)";

std::vector<Outcome> outcomes(const std::vector<Change>& changes) {
  std::vector<Outcome> out;
  for (const auto& change : changes) out.push_back(change.outcome);
  return out;
}

// Every fault of what `statement` throws, as lines.
template <class F>
std::vector<std::string> faults_of(F&& statement) {
  std::vector<std::string> out;
  try {
    statement();
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    for (const auto& fault : e.faults()) out.push_back(fault.where + ": " + fault.what);
    if (out.empty()) out.push_back(e.what());
  }
  return out;
}

class ResourcesTest : public testing::TestWithParam<std::string> {
 protected:
  ResourcesFixture f{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Engines, ResourcesTest, testing::ValuesIn(sql::engines()),
                         [](const auto& info) { return info.param; });

TEST_P(ResourcesTest, AppliesInTheOrderThatIsNeededAndASecondTimeChangesNothing) {
  const auto first = f.apply(kBase);
  EXPECT_EQ(outcomes(first), std::vector(4, Outcome::created));
  EXPECT_EQ(first[0].key.str(), "Zone uae");
  EXPECT_EQ(first[3].key.str(), "Project acme/flights");
  EXPECT_EQ(first[3].revision, 1);
  EXPECT_EQ(f.directory->snapshot()->find<iam::Project>("acme/flights")->zone.str(), "uae");

  const auto second = f.apply(kBase);
  EXPECT_EQ(outcomes(second), std::vector(4, Outcome::unchanged));
  EXPECT_EQ(second[3].revision, 1);
  EXPECT_EQ(f.resources.history({"Zone", "", "", "uae"}).size(), 1U);
}

// A database that refuses to be written proves that nothing was.
TEST_P(ResourcesTest, UnchangedMeansNoWriteAtAll) {
  f.apply(kBase);
  f.database->stop();
  EXPECT_EQ(outcomes(f.apply(kBase)), std::vector(4, Outcome::unchanged));
  EXPECT_ERROR(f.apply("{apiVersion: falaj/v1, kind: Zone, metadata: {name: x}, spec: {residency: AE}}"),
               Code::cancelled);
}

TEST_P(ResourcesTest, ShowsWhatWouldChangeWithoutChangingIt) {
  f.apply(kBase);
  const auto documents = read_documents(
      "t.yaml", "{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme, labels: {a: b}}, spec: {zones: [uae]}}");
  const auto plan = f.resources.plan(documents, ResourcesFixture::anything);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].outcome, Outcome::updated);
  EXPECT_EQ(plan[0].diff, (std::vector<std::string>{"+ metadata.labels.a: b", "- spec.zones[1]: eu"}));
  EXPECT_EQ(f.resources.get({"Tenant", "", "", "acme"}).revision, 1);
}

TEST_P(ResourcesTest, NamesFileLineFieldAndWhatIsAllowed) {
  f.apply(kBase);
  const auto yaml = R"(apiVersion: falaj/v1
kind: RoleBinding
metadata:
  tenant: acme
  nam: x
spec:
  role: "Not A Name"
  subjects:
    - robot/x
---
apiVersion: falaj/v2
kind: Projekt
metadata: {name: y}
---
apiVersion: falaj/v1
kind: Zone
metadata:
  tenant: acme
  name: z
spec:
  residency: A
  backends: disk
---
apiVersion: falaj/v1
kind: Role
metadata: {name: r, labels: {"Bad Key": v}}
spec:
  rules:
    - effect: permit
      actions: []
)";
  EXPECT_EQ(faults_of([&] { f.apply(yaml, "bad.yaml"); }),
            (std::vector<std::string>{
                "bad.yaml:5: metadata.nam: unknown field; did you mean 'name'?",
                "bad.yaml:3: metadata.name: required, but missing",
                "bad.yaml:7: spec.role: must be the NAME of a role of the platform, or TENANT/NAME, not 'Not A Name'",
                "bad.yaml:9: spec.subjects[0]: must be user/NAME, service/NAME, certificate/NAME or group/NAME, with "
                "TENANT/ before the "
                "name when it belongs to one, not 'robot/x'",
                "bad.yaml:11: apiVersion: must be one of falaj/v1, not 'falaj/v2'",
                "bad.yaml:12: kind: no kind 'Projekt'; did you mean 'Project'?",
                "bad.yaml:18: metadata.tenant: a Zone belongs to the platform, not to a tenant",
                "bad.yaml:21: spec.residency: must have 2 to 32 bytes, not 1",
                "bad.yaml:22: spec.backends: must be a list, not text",
                "bad.yaml:26: metadata.labels.Bad Key: the key must be 1 to 63 of a-z, 0-9, '.', '_', '-', beginning "
                "and ending with a "
                "letter or digit",
                "bad.yaml:29: spec.rules[0].effect: must be one of allow, forbid, not 'permit'",
                "bad.yaml:30: spec.rules[0].actions: must have 1 to 100 entries, not 0",
            }));
}

TEST_P(ResourcesTest, NamesWhatIsMissingOrDoesNotFit) {
  f.apply(kBase);
  const auto yaml = R"(apiVersion: falaj/v1
kind: Project
metadata: {tenant: other, name: p}
spec: {zone: uae}
---
apiVersion: falaj/v1
kind: Project
metadata: {tenant: acme, name: p}
spec: {zone: mars}
---
apiVersion: falaj/v1
kind: RoleBinding
metadata: {tenant: acme, name: b}
spec:
  role: other/curator
  subjects: [user/nobody, service/third/ci]
---
apiVersion: falaj/v1
kind: Role
metadata: {name: admin}
spec: {rules: [{actions: ["*"]}]}
---
apiVersion: falaj/v1
kind: Quota
metadata: {tenant: acme, name: q}
spec: {tenant: acme}
)";
  EXPECT_EQ(
      faults_of([&] { f.apply(yaml, "bad.yaml"); }),
      (std::vector<std::string>{
          "bad.yaml:3: metadata.tenant: there is no Tenant other",
          "bad.yaml:9: spec.zone: must be one of tenant acme's zones (uae, eu), not 'mars'",
          "bad.yaml:9: spec.zone: there is no Zone mars",
          "bad.yaml:20: metadata.name: 'admin' is a built-in role",
          "bad.yaml:15: spec.role: a role of tenant other can only be bound in that tenant",
          "bad.yaml:16: spec.subjects[1]: must be of tenant acme or of the platform, not 'service/third/ci'",
          "bad.yaml:16: spec.subjects[0]: there is no User nobody",
          "bad.yaml:16: spec.subjects[1]: there is no ServiceAccount third/ci",
          "bad.yaml:15: spec.role: there is no Role other/curator",
          "bad.yaml:26: spec.project: required: a quota of a tenant limits one of its projects",
          "bad.yaml:26: spec.tenant: only for quotas of the platform: leave out metadata.tenant to limit a tenant",
          "bad.yaml:26: spec: must limit something: blobBytes, blobObjects, requestsPerSecond or concurrentJobs",
      }));
  EXPECT_ERROR(f.resources.get({"Project", "acme", "", "p"}), Code::not_found);
}

TEST_P(ResourcesTest, RefusesHostileYaml) {
  std::string deep, wide = "a: [",
                    twice = "{apiVersion: falaj/v1, kind: Zone, metadata: {name: x}, spec: {residency: AE}}\n---\n";
  for (int i = 0; i < 1000; ++i) deep += "{a: ";
  for (int i = 0; i < 200'000; ++i) wide += "1,";
  for (const auto& text : {deep, wide + "]", std::string("a: &x [1]\nb: *x"), std::string("a: !!python/object x"),
                           std::string("a: 1\na: 2"), std::string("\xff\xfe"), std::string(2 << 20, 'x'),
                           std::string("[1, 2]"), std::string("just text")})
    EXPECT_ERROR(f.apply(text), Code::invalid);
  EXPECT_EQ(faults_of([&] { f.apply(twice + twice + twice); }).size(), 2U);
  EXPECT_TRUE(f.apply("").empty());
  EXPECT_TRUE(f.apply("---\n---\n").empty());
  const std::vector<Document> many(kDocumentsMax + 1, json_document("x", json::object{}));
  EXPECT_ERROR(f.resources.apply(ResourcesFixture::act(), many, ResourcesFixture::anything), Code::invalid);
}

TEST_P(ResourcesTest, WhatIsNeededCannotBeRemoved) {
  f.apply(kBase);
  const Key zone{"Zone", "", "", "uae"}, tenant{"Tenant", "", "", "acme"}, project{"Project", "acme", "", "flights"};
  EXPECT_EQ(faults_of([&] { f.remove(zone); }).at(0), "Zone uae is still needed by Project acme/flights, Tenant acme");
  EXPECT_EQ(faults_of([&] { f.remove(tenant); }).at(0), "Tenant acme is still needed by Project acme/flights");
  const Key all[] = {zone, tenant, project};
  const auto changes = f.resources.remove(ResourcesFixture::act(), all, ResourcesFixture::anything);
  EXPECT_EQ(changes.front().key, project);
  EXPECT_EQ(changes.back().key, zone);
  EXPECT_EQ(changes.back().outcome, Outcome::deleted);
  EXPECT_EQ(f.directory->snapshot()->find<iam::Tenant>("acme"), nullptr);
  EXPECT_ERROR(f.remove(zone), Code::not_found);
}

TEST_P(ResourcesTest, AZoneIsNotTakenFromUnderAProject) {
  f.apply(kBase);
  EXPECT_EQ(faults_of([&] {
              f.apply("{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [eu]}}");
            }).at(0),
            "test.yaml:1: spec.zones: must hold 'uae' as long as project flights is in it");
  EXPECT_ERROR(
      f.apply("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: eu}}"),
      Code::invalid);
}

TEST_P(ResourcesTest, KeepsEveryRevisionAndGoesBack) {
  f.apply(kBase);
  const Key key{"Zone", "", "", "eu"};
  const auto zone = [](std::string_view residency) {
    return fmt::format("{{apiVersion: falaj/v1, kind: Zone, metadata: {{name: eu}}, spec: {{residency: {}}}}}",
                       residency);
  };
  f.clock.advance(std::chrono::seconds(5));
  f.apply(zone("DE"));
  auto back = f.resources.rollback({"user/ada", "", "", ""}, key, 1, ResourcesFixture::anything);
  EXPECT_EQ(back.at(0).revision, 3);
  EXPECT_EQ(back.at(0).diff, std::vector<std::string>{"~ spec.residency: DE -> EU"});
  EXPECT_EQ(f.directory->snapshot()->find<iam::Zone>("eu")->residency, "EU");
  EXPECT_EQ(f.resources.rollback(ResourcesFixture::act(), key, 3, ResourcesFixture::anything).at(0).outcome,
            Outcome::unchanged);

  const auto history = f.resources.history(key);
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[0].verb, "create");
  EXPECT_EQ(history[1].verb, "update");
  EXPECT_EQ(history[1].at_us - history[0].at_us, 5'000'000);
  EXPECT_EQ(history[2].actor, "user/ada");
  EXPECT_EQ(history[2].digest, history[0].digest);
  EXPECT_NE(history[1].digest, history[0].digest);
  EXPECT_ERROR(f.resources.rollback(ResourcesFixture::act(), key, 9, ResourcesFixture::anything), Code::not_found);

  f.apply("{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae]}}");
  f.remove(key);
  EXPECT_EQ(f.resources.history(key).back().verb, "delete");
  EXPECT_ERROR(f.resources.rollback(ResourcesFixture::act(), key, 4, ResourcesFixture::anything), Code::invalid);
  EXPECT_EQ(f.resources.rollback(ResourcesFixture::act(), key, 2, ResourcesFixture::anything).at(0).outcome,
            Outcome::created);
  EXPECT_EQ(f.resources.get(key).revision, 5);
}

TEST_P(ResourcesTest, ATenantSaysHowFarItsJobsAreKeptApart) {
  f.apply(kBase);
  const auto isolation = [&] { return f.directory->snapshot()->find<iam::Tenant>("acme")->isolation_min; };
  EXPECT_EQ(isolation(), "");
  const auto apply = [&](std::string_view level) {
    f.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: Tenant, metadata: {{name: acme}}, spec: {{zones: [uae, eu],"
                    " isolationMin: {}}}}}",
                    level));
  };
  apply("contained");
  EXPECT_EQ(isolation(), "contained");
  EXPECT_ERROR(apply("somewhat"), Code::invalid);
  EXPECT_EQ(isolation(), "contained");
}

TEST_P(ResourcesTest, AGivenRevisionMustBeTheCurrentOne) {
  f.apply(kBase);
  const auto zone = [](int revision, std::string_view residency) {
    return fmt::format(
        "{{apiVersion: falaj/v1, kind: Zone, metadata: {{name: eu, revision: {}}}, spec: {{residency: {}}}}}", revision,
        residency);
  };
  EXPECT_EQ(f.apply(zone(1, "DE")).at(0).revision, 2);
  EXPECT_EQ(faults_of([&] { f.apply(zone(1, "FR")); }).at(0), "Zone eu: revision 1 was given but it is at 2");
  EXPECT_ERROR(f.apply(zone(0, "FR")), Code::conflict);
  EXPECT_ERROR(f.apply("{apiVersion: falaj/v1, kind: Zone, metadata: {name: us, revision: 1}, spec: {residency: US}}"),
               Code::conflict);
  EXPECT_EQ(f.apply("{apiVersion: falaj/v1, kind: Zone, metadata: {name: us, revision: 0}, spec: {residency: US}}")
                .at(0)
                .revision,
            1);
  // What get gives can be changed and applied again.
  auto got = f.resources.get({"Zone", "", "", "eu"}).json();
  EXPECT_EQ(got.at("status").at("updated_by"), "user/test");
  EXPECT_EQ(f.apply(to_yaml(got)).at(0).outcome, Outcome::unchanged);
  got.at("spec").at("residency") = "FR";
  EXPECT_EQ(f.apply(to_yaml(got)).at(0).diff, std::vector<std::string>{"~ spec.residency: DE -> FR"});
}

TEST_P(ResourcesTest, OfManyWhoChangeTheSameRevisionOneWins) {
  f.apply(kBase);
  std::atomic<int> won{0}, lost{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      try {
        f.apply(fmt::format(
            "{{apiVersion: falaj/v1, kind: Zone, metadata: {{name: eu, revision: 1}}, spec: {{residency: Z{}}}}}", i));
        ++won;
      } catch (const Error& e) {
        if (e.code() == Code::conflict) ++lost;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(lost, 3);
  EXPECT_EQ(f.resources.history({"Zone", "", "", "eu"}).size(), 2U);
}

TEST_P(ResourcesTest, DeniesAllWhenOneIsDeniedAndNamesEach) {
  const Authorise no_tenants = [](std::string_view action, const iam::Scope& resource) -> std::optional<std::string> {
    if (!action.starts_with("tenant.")) return std::nullopt;
    return fmt::format("no role grants {} on {} to user/test", action, resource.str());
  };
  try {
    f.resources.apply(ResourcesFixture::act(), read_documents("t.yaml", kBase), no_tenants);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::denied);
    ASSERT_EQ(e.faults().size(), 1U);
    EXPECT_EQ(e.faults()[0].where, "t.yaml:9: metadata.name");
    EXPECT_EQ(e.faults()[0].what, "no role grants tenant.create on /tenant/acme to user/test");
  }
  EXPECT_ERROR(f.resources.get({"Zone", "", "", "uae"}), Code::not_found);
  f.apply(kBase);
  const Key keys[] = {{"Tenant", "", "", "acme"}, {"Project", "acme", "", "flights"}};
  EXPECT_ERROR(f.resources.remove(ResourcesFixture::act(), keys, no_tenants), Code::denied);
  EXPECT_NO_THROW(f.resources.get(keys[1]));
}

TEST_P(ResourcesTest, ATenantsAdministratorRulesInItButNotOverIt) {
  f.apply(kBase);
  const iam::Policy policy({}, {{"boss", "admin", {"user/ada"}, iam::Scope::of_tenant("acme")}});
  const Authorise as_ada = [&](std::string_view action, const iam::Scope& scope) -> std::optional<std::string> {
    const auto decision = decide(policy, iam::Principal::parse("user/ada"), action, scope);
    return decision.allowed ? std::nullopt : std::optional<std::string>("no");
  };
  const auto as = [&](std::string_view yaml) {
    return f.resources.apply(ResourcesFixture::act(), read_documents("t.yaml", yaml), as_ada);
  };
  EXPECT_NO_THROW(as("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: more}, spec: {zone: eu}}"));
  EXPECT_NO_THROW(
      as("{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae, eu]}}"));  // unchanged
  EXPECT_ERROR(as("{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae, eu, us]}}"),
               Code::denied);
  EXPECT_ERROR(as("{apiVersion: falaj/v1, kind: Quota, metadata: {name: q}, spec: {tenant: acme, blobBytes: 9TiB}}"),
               Code::denied);
  EXPECT_ERROR(
      as("{apiVersion: falaj/v1, kind: RoleBinding, metadata: {name: b}, spec: {role: admin, subjects: [user/ada]}}"),
      Code::denied);
  const Key tenant{"Tenant", "", "", "acme"};
  EXPECT_ERROR(f.resources.remove(ResourcesFixture::act(), {&tenant, 1}, as_ada), Code::denied);
}

TEST_P(ResourcesTest, ListsPageByPageWhatMatchesAndMayBeRead) {
  f.apply(kBase);
  std::string yaml;
  for (int i = 0; i < 25; ++i)
    yaml += fmt::format(
        "---\n{{apiVersion: falaj/v1, kind: Group, metadata: {{tenant: acme, name: g{:02}, labels: {{parity: {}}}}}, "
        "spec: {{}}}}\n",
        i, i % 2 ? "odd" : "even");
  f.apply(yaml);
  std::vector<std::string> seen;
  ListOptions options;
  options.limit = 4;
  options.selector = "parity=odd";
  do {
    const auto page = f.resources.list(
        "groups", options, [](std::string_view action, const iam::Scope& scope) -> std::optional<std::string> {
          EXPECT_EQ(action, "group.read");
          return scope.name() == "g03" ? std::optional<std::string>("no") : std::nullopt;
        });
    EXPECT_LE(page.items.size(), 4U);
    for (const auto& item : page.items) seen.push_back(item.resource.metadata.name);
    options.cursor = page.next;
  } while (!options.cursor.empty());
  EXPECT_EQ(seen,
            (std::vector<std::string>{"g01", "g05", "g07", "g09", "g11", "g13", "g15", "g17", "g19", "g21", "g23"}));
  options = {};
  options.tenant = "other";
  EXPECT_TRUE(f.resources.list("Group", options, ResourcesFixture::anything).items.empty());
  options.cursor = "%%%";
  EXPECT_ERROR(f.resources.list("Group", options, ResourcesFixture::anything), Code::invalid);
  EXPECT_ERROR(f.resources.list("Grupo", {}, ResourcesFixture::anything), Code::not_found);
  options = {};
  options.limit = 1001;
  EXPECT_ERROR(f.resources.list("Group", options, ResourcesFixture::anything), Code::invalid);
}

// Remembers what it was told.
class Recorder final : public sql::Ledger {
 public:
  void append(sql::Writer&, const sql::Act& act, std::span<const sql::Effect> effects) override {
    acts.push_back(act);
    last.assign(effects.begin(), effects.end());
  }
  void seal(sql::Writer&) override {}
  void committed(bool) override {}
  std::vector<sql::Act> acts;
  std::vector<sql::Effect> last;
};

TEST_P(ResourcesTest, IsRecordedAsOneActWithAnEffectForEachChange) {
  Recorder ledger;
  f.database->set_ledger(ledger);
  f.apply(kBase);
  ASSERT_EQ(ledger.acts.size(), 1U);
  EXPECT_EQ(ledger.acts[0].verb, "resource.apply");
  EXPECT_EQ(ledger.acts[0].resource, "/");
  ASSERT_EQ(ledger.last.size(), 4U);
  EXPECT_EQ(ledger.last[3].resource, "/t/acme/p/flights");
  EXPECT_FALSE(ledger.last[3].before);
  const auto project = f.resources.get({"Project", "acme", "", "flights"});
  EXPECT_EQ(ledger.last[3].after, project.digest);

  f.apply(std::string(kBase) +
          "---\n{apiVersion: falaj/v1, kind: Group, metadata: {tenant: acme, name: ml}, spec: {}}");
  EXPECT_EQ(ledger.acts.back().verb, "group.create");
  EXPECT_EQ(ledger.acts.back().resource, "/t/acme/group/ml");
  f.remove({"Project", "acme", "", "flights"});
  EXPECT_EQ(ledger.acts.back().verb, "project.delete");
  EXPECT_EQ(ledger.last.at(0).before, project.digest);
  EXPECT_FALSE(ledger.last.at(0).after);
  EXPECT_EQ(ledger.acts.size(), 3U);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// The example of the repository applies in any order of its files, grants what it says, and survives an export.
TEST_P(ResourcesTest, TheFlightsExampleAppliesAndIsExported) {
  std::vector<Document> documents;
  std::set<std::filesystem::path, std::greater<>> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(FALAJ_TESTDATA "/../../../../examples/flights").lexically_normal()))
    if (entry.path().extension() == ".yaml") files.insert(entry.path());
  ASSERT_GE(files.size(), 6U);
  for (const auto& file : files)
    for (auto& document : read_documents(file.filename(), read_file(file))) documents.push_back(std::move(document));
  const auto applied = f.resources.apply(ResourcesFixture::act(), documents, ResourcesFixture::anything);
  EXPECT_EQ(outcomes(applied), std::vector(documents.size(), Outcome::created));

  const auto snapshot = f.directory->snapshot();
  const auto may = [&](std::string_view who, std::string_view action, std::string_view resource) {
    return decide(snapshot->policy(), snapshot->with_groups(iam::Principal::parse(who)), action,
                  iam::Scope::parse(resource))
        .allowed;
  };
  EXPECT_TRUE(may("user/acme/ada", "blob.create", "/t/acme/p/flights/blob/features"));
  EXPECT_FALSE(may("user/acme/ada", "project.delete", "/t/acme/p/flights"));
  EXPECT_TRUE(may("service/acme/ci", "model.create", "/t/acme/p/flights/model/delay"));
  EXPECT_FALSE(may("service/acme/ci", "model.delete", "/t/acme/p/flights/model/delay"));
  EXPECT_TRUE(may("user/acme/omar", "blob.delete", "/t/acme/p/flights/blob/old"));
  EXPECT_FALSE(may("user/acme/omar", "blob.delete", "/t/acme/p/flights/blob/raw-2024"));
  EXPECT_TRUE(iam::may_transfer(snapshot->transfer_grants(), ZoneName::parse("uae-north"), ZoneName::parse("eu-west"),
                                iam::Scope::parse("/t/acme/p/flights/blob/model-1"), f.clock.wall().count()));
  EXPECT_EQ(snapshot->quotas(iam::Scope::parse("/t/acme/p/flights")).size(), 2U);

  const auto exported = f.resources.export_yaml({}, ResourcesFixture::anything);
  EXPECT_EQ(outcomes(f.apply(exported)), std::vector(documents.size(), Outcome::unchanged));
  ResourcesFixture empty(GetParam());
  EXPECT_EQ(outcomes(empty.apply(exported)), std::vector(documents.size(), Outcome::created));
  EXPECT_EQ(empty.resources.export_yaml({}, ResourcesFixture::anything), exported);
  EXPECT_EQ(
      f.resources.export_yaml(iam::Scope::of_project("acme", "flights"), ResourcesFixture::anything).find("kind: Zone"),
      std::string::npos);
}

// ---- a kind of the test's own, whose hook fails when told

}  // namespace

struct ThingSpec {
  std::int64_t size = 0;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::ThingSpec> {
  static constexpr std::string_view name = "ThingSpec";
  static Fields fields() { return {field("size", &resource::ThingSpec::size, "How large.")}; }
};

namespace falaj::resource {
namespace {

Kind thing_kind(int& until_failure) {
  KindOf<ThingSpec> kind{"Thing", "things", "Something.", {.platform = true}, {}, {}, {}};
  kind.changed = [&until_failure](const ChangeOf<ThingSpec>&) {
    if (until_failure-- == 0) throw Error(Code::unavailable, "the hook failed");
  };
  return make_kind(std::move(kind));
}

std::string thing(std::string_view name, std::uint64_t size) {
  return fmt::format("---\n{{apiVersion: falaj/v1, kind: Thing, metadata: {{name: {}}}, spec: {{size: {}}}}}\n", name,
                     size);
}

TEST(Resources, AFailureAtAnyPointLeavesNothing) {
  for (int fail_at = 0; fail_at < 5; ++fail_at) {
    int until_failure = 1 << 20;
    ResourcesFixture f("sqlite", {thing_kind(until_failure)});
    f.apply(thing("old", 1));
    until_failure = fail_at;
    std::string yaml =
        thing("old", 2) + "---\n{apiVersion: falaj/v1, kind: Zone, metadata: {name: z}, spec: {residency: AE}}\n";
    for (int i = 0; i < 4; ++i) yaml += thing(fmt::format("new{}", i), 1);
    EXPECT_ERROR(f.apply(yaml), Code::unavailable);
    EXPECT_EQ(f.resources.list("Thing", {}, ResourcesFixture::anything).items.size(), 1U);
    EXPECT_EQ(f.resources.get({"Thing", "", "", "old"}).revision, 1);
    EXPECT_EQ(f.directory->snapshot()->find<iam::Zone>("z"), nullptr);
    until_failure = 1 << 20;
    EXPECT_EQ(f.apply(yaml).size(), 6U);
  }
}

TEST(Resources, AgreeWithANaiveModelOnRandomChanges) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  sys::SimRandom random(kSeed);
  int until_failure = 1 << 20;
  ResourcesFixture f("sqlite", {thing_kind(until_failure)});
  std::map<std::string, std::uint64_t> model;
  std::map<std::string, std::vector<std::optional<std::uint64_t>>> histories;
  for (int round = 0; round < 150; ++round) {
    std::map<std::string, std::uint64_t> wanted;
    std::string yaml;
    for (std::uint64_t i = 0, n = random.below(4); i < n; ++i)
      wanted[fmt::format("t{}", random.below(6))] = random.below(3);
    for (const auto& [name, size] : wanted) yaml += thing(name, size);
    switch (random.below(4)) {
      case 0: {  // remove
        const auto name = fmt::format("t{}", random.below(6));
        if (model.erase(name) > 0) {
          f.remove({"Thing", "", "", name});
          histories[name].push_back(std::nullopt);
        } else {
          EXPECT_ERROR(f.remove({"Thing", "", "", name}), Code::not_found);
        }
        break;
      }
      case 1: {  // fail, if anything is to change
        bool changes = false;
        for (const auto& [name, size] : wanted) changes = changes || !model.contains(name) || model[name] != size;
        until_failure = 0;
        if (changes)
          EXPECT_ERROR(f.apply(yaml), Code::unavailable);
        else
          f.apply(yaml);
        until_failure = 1 << 20;
        break;
      }
      default: {
        const auto changes = f.apply(yaml);
        ASSERT_EQ(changes.size(), wanted.size());
        for (const auto& change : changes) {
          const auto name = change.key.name;
          const auto expected = !model.contains(name)         ? Outcome::created
                                : model[name] == wanted[name] ? Outcome::unchanged
                                                              : Outcome::updated;
          ASSERT_EQ(resource::name(change.outcome), resource::name(expected));
          if (expected != Outcome::unchanged) histories[name].push_back(wanted[name]);
          model[name] = wanted[name];
          ASSERT_EQ(change.revision, static_cast<std::int64_t>(histories[name].size()));
        }
      }
    }
    std::map<std::string, std::uint64_t> stored;
    for (const auto& item : f.resources.list("Thing", {}, ResourcesFixture::anything).items)
      stored[item.resource.metadata.name] = static_cast<std::uint64_t>(item.resource.spec.at("size").as_int64());
    ASSERT_EQ(stored, model) << "round " << round;
  }
  for (const auto& [name, expected] : histories) {
    const auto history = f.resources.history({"Thing", "", "", name});
    ASSERT_EQ(history.size(), expected.size());
    for (std::size_t i = 0; i < history.size(); ++i)
      ASSERT_EQ(history[i].resource.has_value(), expected[i].has_value());
  }
}

TEST(Selector, TakesWhatItSays) {
  const std::map<std::string, std::string> labels = {{"env", "prod"}, {"team", "search"}};
  for (const auto* yes : {"", "env=prod", "env", "!old", "team!=ads", "env=prod,team=search,!old", "old!=x"})
    EXPECT_TRUE(Selector::parse(yes).accepts(labels)) << yes;
  for (const auto* no : {"env=test", "old", "!env", "team!=search", "env=prod,old"})
    EXPECT_FALSE(Selector::parse(no).accepts(labels)) << no;
  for (const auto* bad : {"=", "a,,b", "A=b", "!"}) EXPECT_ERROR(Selector::parse(bad), Code::invalid);
}

TEST(Registry, SaysWhatThereIs) {
  ResourcesFixture f;
  EXPECT_EQ(f.registry.get("rolebindings").name, "RoleBinding");
  EXPECT_EQ(f.registry.get("rolebinding").action("create"), "rolebinding.create");
  json::object definitions;
  for (const auto& kind : f.registry.kinds()) EXPECT_TRUE(kind.schema(definitions).contains("$ref")) << kind.name;
  EXPECT_TRUE(definitions.contains("Rule"));
}

}  // namespace
}  // namespace falaj::resource
