// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "governance/resource/store.h"

namespace falaj::resource {
namespace {

// The stored world with this apply's declarations laid over it.
class Overlay final : public World {
 public:
  Overlay(sql::Reader& reader, std::span<const Declared> declared) : reader_(reader) {
    for (const auto& d : declared) declared_[d.resource.key()] = &d.resource;
  }
  std::optional<json::value> spec(const Key& key) const override {
    if (const auto found = declared_.find(key); found != declared_.end()) return found->second->spec;
    auto stored = store::find(reader_, key);
    return stored ? std::optional(std::move(stored->resource.spec)) : std::nullopt;
  }

 private:
  sql::Reader& reader_;
  std::map<Key, const Resource*> declared_;
};

void refuse_denied(std::vector<Fault> refusals) {
  if (refusals.empty()) return;
  auto message = refusals.front().what;
  if (refusals.size() > 1) message += fmt::format(" (and {} more)", refusals.size() - 1);
  throw Error(Code::denied, message, std::move(refusals));
}

// Where it belongs comes before what its kind says it needs.
std::vector<Reference> references_of(const World& world, const Declared& d) {
  const auto& metadata = d.resource.metadata;
  std::vector<Reference> out;
  if (!metadata.tenant.empty()) out.push_back({{"Tenant", "", "", metadata.tenant}, "metadata.tenant"});
  if (!metadata.project.empty())
    out.push_back({{"Project", metadata.tenant, "", metadata.project}, "metadata.project"});
  if (d.kind->refers_to) {
    auto more = d.kind->refers_to(world, metadata, d.resource.spec);
    out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return out;
}

Step compare(sql::Reader& reader, const Declared& d) {
  Step step{d.kind, Outcome::created, d.resource.key(), store::find(reader, d.resource.key()), d.resource, {}};
  if (step.before) step.outcome = step.before->digest == d.resource.digest() ? Outcome::unchanged : Outcome::updated;
  return step;
}

void require_revision(const Step& step) {
  const auto given = step.after->metadata.revision;
  const auto current = step.before ? step.before->revision : 0;
  if (!given || *given == current) return;
  throw Error(Code::conflict,
              current == 0 ? fmt::format("{}: revision {} was given but it does not exist", step.key.str(), *given)
                           : fmt::format("{}: revision {} was given but it is at {}", step.key.str(), *given, current));
}

}  // namespace

std::string_view verb_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::created:
      return "create";
    case Outcome::updated:
      return "update";
    case Outcome::deleted:
      return "delete";
    case Outcome::unchanged:
      return "read";
  }
  return "update";
}

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::created:
      return "created";
    case Outcome::updated:
      return "updated";
    case Outcome::unchanged:
      return "unchanged";
    case Outcome::deleted:
      return "deleted";
  }
  return "unknown";
}

std::vector<Declared> read_all(const Registry& registry, std::span<const Document> documents) {
  if (documents.size() > kDocumentsMax)
    throw Error(Code::invalid,
                fmt::format("at most {} documents in one apply, not {}", kDocumentsMax, documents.size()));
  Faults faults;
  std::vector<Declared> out;
  std::map<Key, const Document*> seen;
  for (const auto& document : documents) {
    auto resource = read_resource(registry, document, faults);
    if (!resource) continue;
    const auto [first, fresh] = seen.emplace(resource->key(), &document);
    if (!fresh)
      faults.push_back(
          {document.where("metadata.name"), fmt::format("{} is declared twice; first at {}", resource->key().str(),
                                                        first->second->where("metadata.name"))});
    const auto* kind = registry.find(resource->kind);
    out.push_back({&document, kind, std::move(*resource)});
  }
  refuse_if_any("resources", std::move(faults));
  std::stable_sort(out.begin(), out.end(), [](const Declared& a, const Declared& b) { return a.kind < b.kind; });
  return out;
}

Change Step::change() const {
  const auto was = before ? before->resource.body() : json::value();
  const auto is = after ? after->body() : json::value();
  return {outcome, key, before ? before->revision : 0,
          outcome == Outcome::unchanged ? std::vector<std::string>() : diff(was, is)};
}

std::vector<Step> plan_apply(sql::Reader& reader, std::span<const Declared> declared, const Authorise& authorise) {
  const Overlay world(reader, declared);
  std::vector<Step> steps;
  Faults refusals;
  for (const auto& d : declared) {
    steps.push_back(compare(reader, d));
    const auto& step = steps.back();
    const auto scope = step.outcome == Outcome::unchanged ? step.key.scope() : step.key.change_scope();
    if (auto why = authorise(d.kind->action(verb_of(step.outcome)), scope))
      refusals.push_back({d.document->where("metadata.name"), std::move(*why)});
  }
  refuse_denied(std::move(refusals));

  Faults faults;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const auto& d = declared[i];
    auto& step = steps[i];
    require_revision(step);
    if (step.outcome == Outcome::unchanged) continue;
    Faults found;
    if (d.kind->check) d.kind->check(world, d.resource.metadata, d.resource.spec, found);
    step.references = references_of(world, d);
    for (const auto& [to, where] : step.references)
      if (!world.spec(to)) found.push_back({where, fmt::format("there is no {}", to.str())});
    for (auto& fault : found) faults.push_back({d.document->where(fault.where), std::move(fault.what)});
  }
  refuse_if_any("resources", std::move(faults));
  return steps;
}

std::vector<Step> plan_remove(sql::Reader& reader, const Registry& registry, std::span<const Key> keys,
                              const Authorise& authorise) {
  std::vector<Step> steps;
  Faults refusals;
  const std::set<Key> going(keys.begin(), keys.end());
  for (const auto& key : going) {
    const auto& kind = registry.get(key.kind);
    if (auto why = authorise(kind.action("delete"), key.change_scope())) {
      refusals.push_back({key.str(), std::move(*why)});
      continue;
    }
    auto stored = store::find(reader, key);
    if (!stored) throw Error(Code::not_found, fmt::format("there is no {}", key.str()));
    steps.push_back({&kind, Outcome::deleted, key, std::move(stored), std::nullopt, {}});
  }
  refuse_denied(std::move(refusals));
  for (const auto& step : steps) {
    constexpr std::size_t kNamed = 5;
    std::vector<std::string> needed_by;
    for (const auto& dependent : store::dependents(reader, step.key))
      if (!going.contains(dependent)) needed_by.push_back(dependent.str());
    if (needed_by.empty()) continue;
    const auto more = needed_by.size() > kNamed ? fmt::format(" and {} more", needed_by.size() - kNamed) : "";
    needed_by.resize(std::min(needed_by.size(), kNamed));
    throw Error(Code::conflict,
                fmt::format("{} is still needed by {}{}", step.key.str(), fmt::join(needed_by, ", "), more));
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.kind > b.kind; });
  return steps;
}

}  // namespace falaj::resource
