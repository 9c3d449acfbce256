// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/resources.h"

#include <algorithm>

#include <fmt/format.h>

#include "governance/resource/plan.h"
#include "governance/resource/selector.h"
#include "governance/resource/store.h"

namespace falaj::resource {
namespace {

bool changes_anything(std::span<const Step> steps) {
  return std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.outcome != Outcome::unchanged; });
}

std::vector<Change> changes_of(std::span<const Step> steps) {
  std::vector<Change> out;
  for (const auto& step : steps) out.push_back(step.change());
  return out;
}

// The narrowest scope that holds everything that changes.
iam::Scope common_scope(std::span<const Step> steps) {
  const auto holds_all = [&](std::string_view path) {
    const auto scope = iam::Scope::parse(path);
    return std::all_of(steps.begin(), steps.end(), [&](const Step& s) { return scope.contains(s.key.scope()); });
  };
  iam::Scope out;
  const auto first = steps.front().key.scope();
  for (const auto path : first.chain())
    if (holds_all(path)) out = iam::Scope::parse(path);
  return out;
}

// One change is recorded as what it is ("zone.update"), several under `verb`.
sql::Act completed(sql::Act act, std::string_view verb, std::span<const Step> steps) {
  std::vector<Step> changing;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(changing),
               [](const Step& s) { return s.outcome != Outcome::unchanged; });
  if (act.verb.empty()) act.verb = changing.size() == 1 ? changing[0].kind->action(verb_of(changing[0].outcome)) : verb;
  if (act.resource.empty()) act.resource = common_scope(changing).str();
  return act;
}

// A cursor is the key of the last one seen. It says nothing the caller did not get.
std::string write_cursor(const Key& key) {
  ByteWriter out;
  for (const auto* part : {&key.tenant, &key.project, &key.name}) out.text(*part);
  return to_base64url(out.bytes());
}

Key read_cursor(std::string_view cursor) {
  Key out;
  if (cursor.empty()) return out;
  try {
    const auto bytes = from_base64url(cursor);
    ByteReader in(bytes, 64);
    for (auto* part : {&out.tenant, &out.project, &out.name}) *part = in.text();
    in.expect_end();
  } catch (const Error&) {
    throw Error(Code::invalid, "cursor is not one that a list gave");
  }
  return out;
}

}  // namespace

std::span<const sql::Migration> Resources::migrations() { return store::migrations(); }

// Carries the steps out; returns what each became.
std::vector<Change> Resources::carry_out(sql::Writer& writer, const sql::Act& act, std::span<const Step> steps,
                                         std::int64_t now_us) {
  std::vector<Change> out;
  for (const auto& step : steps) {
    auto change = step.change();
    if (step.outcome != Outcome::unchanged) {
      change.revision = step.after ? store::put(writer, *step.after, step.references, act.actor, now_us)
                                   : store::remove(writer, step.key, act.actor, now_us);
      const auto& metadata = step.after ? step.after->metadata : step.before->resource.metadata;
      if (step.kind->changed)
        step.kind->changed(writer, act, metadata, step.before ? &step.before->resource.spec : nullptr,
                           step.after ? &step.after->spec : nullptr);
      sql::Effect effect{step.key.scope().str(), std::nullopt, std::nullopt};
      if (step.before) effect.before = step.before->digest;
      if (step.after) effect.after = step.after->digest();
      writer.record(std::move(effect));
      writer.after_commit([this, key = step.key] { texts_.forget(key); });
    }
    out.push_back(std::move(change));
  }
  return out;
}

std::vector<Change> Resources::plan(std::span<const Document> documents, const Authorise& authorise) {
  const auto declared = read_all(registry_, documents);
  return database_.read([&](sql::Reader& reader) { return changes_of(plan_apply(reader, declared, authorise)); });
}

std::vector<Change> Resources::apply(sql::Act act, std::span<const Document> documents, const Authorise& authorise) {
  const auto declared = read_all(registry_, documents);
  const auto expected = database_.read([&](sql::Reader& reader) { return plan_apply(reader, declared, authorise); });
  if (!changes_anything(expected)) return changes_of(expected);
  act = completed(std::move(act), "resource.apply", expected);
  const auto now = clock_.wall().count();
  // Planned again inside the write: somebody else may have been faster.
  return database_.write(
      act, [&](sql::Writer& writer) { return carry_out(writer, act, plan_apply(writer, declared, authorise), now); });
}

std::vector<Change> Resources::remove(sql::Act act, std::span<const Key> keys, const Authorise& authorise,
                                      const std::function<void(sql::Writer&)>& also) {
  if (keys.empty()) return {};
  const auto expected =
      database_.read([&](sql::Reader& reader) { return plan_remove(reader, registry_, keys, authorise); });
  act = completed(std::move(act), "resource.delete", expected);
  const auto now = clock_.wall().count();
  return database_.write(act, [&](sql::Writer& writer) {
    const auto steps = plan_remove(writer, registry_, keys, authorise);
    if (also) also(writer);
    return carry_out(writer, act, steps, now);
  });
}

std::vector<Change> Resources::rollback(sql::Act act, const Key& key, std::int64_t revision,
                                        const Authorise& authorise) {
  const auto& kind = registry_.get(key.kind);
  if (auto why = authorise(kind.action("update"), key.change_scope())) throw Error(Code::denied, *why);
  const auto then = database_.read([&](sql::Reader& reader) { return store::revision(reader, key, revision); });
  if (!then) throw Error(Code::not_found, fmt::format("{} has no revision {}", key.str(), revision));
  if (!then->resource)
    throw Error(Code::invalid, fmt::format("revision {} of {} is its deletion", revision, key.str()));
  const Document document =
      json_document(fmt::format("revision {} of {}", revision, key.str()), then->resource->body());
  if (act.verb.empty()) act.verb = "resource.rollback";
  return apply(std::move(act), {&document, 1}, authorise);
}

Stored Resources::get(const Key& key) {
  auto stored = database_.read([&](sql::Reader& reader) { return store::find(reader, key); });
  if (!stored) throw Error(Code::not_found, fmt::format("there is no {}", key.str()));
  return std::move(*stored);
}

TextCache::Text Resources::get_text(const Key& key) {
  auto found = texts_.find(key);
  if (!found.text) {
    found.text = std::make_shared<const std::string>(json::serialize(get(key).json()));
    texts_.put(key, found.text, found.seen);
  }
  return found.text;
}

Page Resources::list(std::string_view kind_name, const ListOptions& options, const Authorise& authorise) {
  constexpr std::int64_t kLimitMax = 1000, kScanned = 500;
  if (options.limit < 1 || options.limit > kLimitMax)
    throw Error(Code::invalid, fmt::format("limit must be 1 to {}, not {}", kLimitMax, options.limit));
  const auto& kind = registry_.get(kind_name);
  const auto selector = Selector::parse(options.selector);
  auto after = read_cursor(options.cursor);
  return database_.read([&](sql::Reader& reader) {
    Page page;
    for (;;) {
      auto rows = store::page(reader, kind.name, options.tenant, options.project, after, kScanned);
      for (auto& row : rows) {
        const auto key = row.resource.key();
        if (static_cast<std::int64_t>(page.items.size()) == options.limit) {
          page.next = write_cursor(page.items.back().resource.key());
          return page;
        }
        after = key;
        if (selector.accepts(row.resource.metadata.labels) && !authorise(kind.action("read"), key.scope()))
          page.items.push_back(std::move(row));
      }
      if (static_cast<std::int64_t>(rows.size()) < kScanned) return page;
    }
  });
}

std::vector<Revision> Resources::history(const Key& key) {
  auto out = database_.read([&](sql::Reader& reader) { return store::history(reader, key); });
  if (out.empty()) throw Error(Code::not_found, fmt::format("there is no {}", key.str()));
  return out;
}

std::string Resources::export_yaml(const iam::Scope& scope, const Authorise& authorise) {
  std::string out;
  database_.read([&](sql::Reader& reader) {
    for (const auto& kind : registry_.kinds()) {
      Key after;
      for (;;) {
        constexpr std::int64_t kRows = 500;
        const auto rows = store::page(reader, kind.name, "", "", after, kRows);
        for (const auto& row : rows) {
          after = row.resource.key();
          if (!scope.contains(after.scope()) || authorise(kind.action("read"), after.scope())) continue;
          if (!out.empty()) out += "---\n";
          out += to_yaml(row.resource.body());
        }
        if (static_cast<std::int64_t>(rows.size()) < kRows) break;
      }
    }
  });
  return out;
}

}  // namespace falaj::resource
