// SPDX-License-Identifier: Apache-2.0
// Any text as YAML: refused with an Error, or planned against a small platform through every check of every kind. What
// is accepted is written and read back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "foundation/base/metrics.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/resource/kinds/kinds.h"
#include "governance/resource/resources.h"
#include "governance/resource/selector.h"

using namespace falaj;
using namespace falaj::resource;

namespace {

std::optional<std::string> anything(std::string_view, const iam::Scope&) { return std::nullopt; }

struct Platform {
  Metrics metrics;
  sys::SimClock clock;
  sys::SimRandom random{1};
  std::string directory_path = [] {
    char path[] = "/tmp/resource_fuzz_XXXXXX";
    CHECK(::mkdtemp(path), "a directory for the database");
    return std::string(path);
  }();
  std::unique_ptr<sql::Database> database = [this] {
    auto opened = sql::open_sqlite(directory_path + "/db", metrics);
    opened->migrate(iam::Directory::migrations());
    opened->migrate(Resources::migrations());
    return opened;
  }();
  iam::Directory directory{*database, clock, random, crypto::Key::from(as_bytes("0123456789abcdef0123456789abcdef"))};
  Registry registry{governance_kinds(directory)};
  Resources resources{*database, registry, clock};

  Platform() {
    resources.apply({"user/fuzz", "", "", ""}, read_documents("base", R"(
{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: uae}}
)"),
                    anything);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Platform platform;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto documents = read_documents("fuzz.yaml", text);
    Faults faults;
    for (const auto& document : documents) {
      const auto resource = read_resource(platform.registry, document, faults);
      if (!resource) continue;
      CHECK(read_body(canonical(resource->body())).digest() == resource->digest(),
            "a stored resource is read back the same");
      const auto again = read_documents("again.yaml", to_yaml(resource->body()));
      CHECK(again.size() == 1, "one resource is one document");
      Faults none;
      const auto same = read_resource(platform.registry, again[0], none);
      CHECK(same && same->digest() == resource->digest(), "an exported resource is read back the same");
    }
    platform.resources.plan(documents, anything);
  } catch (const Error&) {
  }
  try {
    Selector::parse(text.substr(0, 200));
  } catch (const Error&) {
  }
  return 0;
}
