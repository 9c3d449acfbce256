// SPDX-License-Identifier: Apache-2.0
// What a decision costs: a company of `users` users in groups of ten, each with a binding of its own and one by group
// in one of a hundred tenants, against the same question put to a plain walk over all bindings.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "governance/iam/credentials.h"
#include "governance/iam/policy.h"
#include "governance/iam/testing.h"
#include "governance/iam/workload.h"

namespace {

using namespace falaj;
using namespace falaj::iam;

std::vector<Binding> company(std::int64_t users) {
  std::vector<Binding> out;
  for (std::int64_t i = 0; i < users; ++i) {
    const auto tenant = fmt::format("tenant{}", i % 100);
    out.push_back({fmt::format("own{}", i),
                   "developer",
                   {fmt::format("user/u{}", i)},
                   Scope::of_project(tenant, fmt::format("p{}", i / 100))});
    if (i % 10 == 0)
      out.push_back({fmt::format("team{}", i), "viewer", {fmt::format("group/g{}", i / 10)}, Scope::of_tenant(tenant)});
  }
  return out;
}

void decide_indexed(benchmark::State& state) {
  const Policy policy({}, company(state.range(0)));
  const Principal who{Principal::Kind::user, "u42", "", {"group/g4"}};
  const auto resource = Scope::parse("/t/tenant42/p/p0/blob/models/delay.onnx");
  for (auto _ : state) benchmark::DoNotOptimize(decide(policy, who, "blob.create", resource).allowed);
}
BENCHMARK(decide_indexed)->Arg(100)->Arg(10'000)->Arg(100'000);

void decide_by_walking(benchmark::State& state) {
  const auto bindings = company(state.range(0));
  const auto resource = Scope::parse("/t/tenant42/p/p0/blob/models/delay.onnx");
  for (auto _ : state) {
    bool allowed = false;
    for (const auto& binding : bindings)
      for (const auto& subject : binding.subjects)
        if ((subject == "user/u42" || subject == "group/g4") && binding.scope.contains(resource))
          for (const auto& role : built_in_roles())
            if (role.name == binding.role)
              for (const auto& rule : role.rules)
                for (const auto& action : rule.actions) allowed |= matches_glob(action, "blob.create");
    benchmark::DoNotOptimize(allowed);
  }
}
BENCHMARK(decide_by_walking)->Arg(100)->Arg(10'000);

void authenticate_and_authorise(benchmark::State& state) {
  static DirectoryFixture fixture;
  static const std::string header = [] {
    const auto issued = fixture.directory->bootstrap(3'600'000'000);
    fixture.write([](sql::Writer& w) {
      for (const auto& binding : company(10'000)) fixture.directory->put(w, binding);
    });
    return "Bearer " + issued->text;
  }();
  const auto resource = Scope::parse("/t/tenant42/p/p0/blob/models/delay.onnx");
  for (auto _ : state) {
    const auto who = fixture.directory->authenticate({header, {}, std::nullopt});
    benchmark::DoNotOptimize(fixture.directory->allows(who, "blob.create", resource));
  }
}
BENCHMARK(authenticate_and_authorise)->Threads(1)->Threads(2)->UseRealTime();

// The limit of the above: one SHA-256 of 32 bytes.
void hash_a_secret(benchmark::State& state) {
  const Secret secret{};
  for (auto _ : state) benchmark::DoNotOptimize(crypto::sha256(BytesView(secret)));
}
BENCHMARK(hash_a_secret);

void parse_a_token(benchmark::State& state) {
  const auto text = format_credential(CredentialKind::token, {{{1, 2}}, {}});
  for (auto _ : state) benchmark::DoNotOptimize(parse_credential(CredentialKind::token, text));
}
BENCHMARK(parse_a_token);

void verify_a_workload_token(benchmark::State& state) {
  const auto key = crypto::Key::from(as_bytes("0123456789abcdef0123456789abcdef"));
  WorkloadClaims claims{"train-7", 3, "acme", "flights", 0, 60'000'000, {}, {}};
  for (int i = 0; i < 10; ++i) claims.inputs.push_back(Scope::parse(fmt::format("/t/acme/p/flights/blob/input-{}", i)));
  const auto token = sign_workload(key, claims);
  for (auto _ : state) benchmark::DoNotOptimize(verify_workload(key, token, 1));
}
BENCHMARK(verify_a_workload_token);

void rebuild_after_a_change(benchmark::State& state) {
  const auto bindings = company(state.range(0));
  for (auto _ : state) {
    const Policy policy({}, bindings);
    benchmark::DoNotOptimize(&policy);
  }
}
BENCHMARK(rebuild_after_a_change)->Arg(1'000)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
