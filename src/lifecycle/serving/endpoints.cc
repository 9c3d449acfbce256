// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/serving/endpoints.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"

namespace falaj::serving {
namespace {

constexpr sql::Migration kMigrations[] = {
    {1, "serving",
     "CREATE TABLE serving_state(number BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " endpoint TEXT NOT NULL, at_us BIGINT NOT NULL, revision BIGINT NOT NULL, variants TEXT NOT NULL,"
     " served_by TEXT NOT NULL, why TEXT NOT NULL);"
     "CREATE INDEX serving_state_endpoint ON serving_state(tenant, project, endpoint, number)"},
    {2, "serving",
     "CREATE TABLE serving_canary(tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,"
     " rule TEXT NOT NULL, step BIGINT NOT NULL, since_us BIGINT NOT NULL, requests BIGINT NOT NULL,"
     " failures BIGINT NOT NULL, PRIMARY KEY(tenant, project, endpoint))"},
    // What a step is compared with: by server and version, with latencies.
    {3, "serving",
     "DROP TABLE serving_canary;"
     "CREATE TABLE serving_canary_step(tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,"
     " rule TEXT NOT NULL, step BIGINT NOT NULL, since_us BIGINT NOT NULL, others_p99_us BIGINT NOT NULL,"
     " began TEXT NOT NULL, PRIMARY KEY(tenant, project, endpoint))"},
    // What servers call a file by: read once, for ever, as a content never changes.
    {4, "serving", "CREATE TABLE serving_file(content TEXT PRIMARY KEY, sha256 TEXT NOT NULL)"}};

constexpr std::int64_t kLookUs = 100'000;  // how often a wait looks whether anything was written
constexpr std::size_t kServersMax = 1'000;
constexpr std::string_view kMonitorKind = "Monitor";  // of lifecycle/watch, which is above us

const resource::Authorise kAnything = [](std::string_view, const iam::Scope&) { return std::optional<std::string>(); };

iam::Scope scope_of(const std::string& tenant, const std::string& project, const std::string& endpoint) {
  return iam::Scope::of(tenant, project, "endpoint", endpoint);
}

resource::Key key_of(const Where& where, const std::string& endpoint) {
  return {"Endpoint", where.tenant.str(), where.project.str(), endpoint};
}

// Reads of what is about people are recorded one by one, which is not done where predictions are made: nobody sees them
// there.
bool may_see_features(const iam::Directory& directory, const iam::Identity& identity,
                      const traffic::Endpoint& endpoint) {
  const auto may_read = [&](const traffic::FeatureView& view) {
    const resource::Key key{"FeatureView", endpoint.tenant, endpoint.project, view.name};
    return !view.personal && directory.allows(identity, "feature.read", key.scope());
  };
  return endpoint.features && std::all_of(endpoint.features->views.begin(), endpoint.features->views.end(), may_read);
}

Served read_state(const sql::Row& row) {
  Served out;
  out.number = row.integer(0);
  out.at_us = row.integer(1);
  out.revision = row.integer(2);
  out.variants = decode<std::vector<traffic::Variant>>(parse_json(row.text(3)), "reading what was served");
  out.by = row.text(4);
  out.why = row.text(5);
  return out;
}

constexpr std::int64_t kWholeRows = 500;  // of a monitor that looks at columns together and does not say how many

// What a monitor says to those who serve.
struct MonitoredEndpoint {
  std::string endpoint;
  traffic::Watching watching;
};
std::optional<MonitoredEndpoint> monitored(const json::value& spec) {
  const auto* fields = spec.if_object();
  const auto* endpoint = fields ? fields->if_contains("endpoint") : nullptr;
  if (!endpoint || !endpoint->is_string()) return std::nullopt;
  MonitoredEndpoint out{std::string(endpoint->get_string()), {}};
  if (const auto* rate = fields->if_contains("rowsPerSecond"); rate && rate->is_int64())
    out.watching.rows_per_second = rate->get_int64();
  if (const auto* window = fields->if_contains("window"); window && window->is_object())
    if (const auto* rows = window->get_object().if_contains("rows"); rows && rows->is_int64())
      out.watching.segment_rows = rows->get_int64();
  if (const auto* together = fields->if_contains("together"); together && together->is_object()) {
    const auto* rows = together->get_object().if_contains("rows");
    out.watching.whole_rows = rows && rows->is_int64() ? rows->get_int64() : kWholeRows;
  }
  return out;
}

}  // namespace

std::span<const sql::Migration> Endpoints::migrations() { return kMigrations; }

Endpoints::Endpoints(Parts parts, std::function<std::int64_t()> writes, Metrics& metrics)
    : parts_(parts),
      writes_(std::move(writes)),
      endpoints_gauge_(metrics.gauge("falaj_serving_endpoints", "Endpoints in the serving plan.")) {
  reading_ = std::thread([this] { read_files(); });
  telling_ = std::thread([this] { tell_followers(); });
}

Endpoints::~Endpoints() {
  {
    Lock lock(mu_);
    stopping_ = ending_ = true;
    changed_.notify_all();
  }
  reading_.join();
  telling_.join();
}

// The version's file; none while it was never read, which is then done meanwhile.
Endpoints::Found Endpoints::file_of(const Where& where, const models::Version& version, Making& making) {
  const auto key = std::pair(version.model_row, version.number);
  if (const auto found = files_.find(key); found != files_.end()) return {&found->second, ""};
  std::optional<vault::Entry> graph;
  for (auto& entry : parts_.models.files(where, version.model_row, version.number, "")) {
    if (!entry.name.ends_with(".onnx")) continue;
    if (graph)
      throw Error(Code::invalid, fmt::format("the version has several ONNX files: {} and {}", graph->name, entry.name));
    graph = std::move(entry);
  }
  if (!graph)
    throw Error(Code::invalid,
                "the version has no ONNX file (a name that ends with .onnx), and nothing else is served");
  const auto sha256 = known_hash(graph->content);
  if (!sha256) {
    const auto content = graph->content.hex();
    making.unread.emplace(content, std::pair(where, std::move(*graph)));
    Lock lock(mu_);
    const auto trouble = unreadable_.find(content);
    return {nullptr, trouble == unreadable_.end() ? "" : trouble->second};
  }
  File file;
  file.where = where;
  file.statement = {where.tenant.str(),
                    where.project.str(),
                    version.model,
                    version.number,
                    *sha256,
                    static_cast<std::int64_t>(graph->bytes)};
  file.entry = std::move(*graph);
  file.signed_by_us.text = json::serialize(encode(file.statement));
  file.signed_by_us.signature = to_base64(parts_.models.signer().sign(as_bytes(file.signed_by_us.text)));
  return {&files_.emplace(key, std::move(file)).first->second, ""};
}

void Endpoints::add_model(const File& file, Making& making) const {
  if (making.by_digest.emplace(file.statement.sha256, std::pair(file.where, file.entry)).second)
    making.plan.models.push_back(file.signed_by_us);
}

void Endpoints::add_endpoint(const resource::Stored& stored, Making& making) {
  const auto& metadata = stored.resource.metadata;
  const auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
  const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
  const auto scope = scope_of(metadata.tenant, metadata.project, metadata.name).str();
  traffic::Endpoint endpoint;
  endpoint.tenant = metadata.tenant;
  endpoint.project = metadata.project;
  endpoint.name = metadata.name;
  endpoint.revision = stored.revision;
  endpoint.sticky = spec.sticky;
  endpoint.batching = spec.batching;
  endpoint.stopped = spec.stopped;
  endpoint.compares = spec.canary && spec.canary->shift_max;
  endpoint.sleep_after_us = spec.sleep_after_us;
  const bool counts_labels = spec.experiment || (spec.canary && spec.canary->metric_drop_max);
  endpoint.names = spec.log || counts_labels;
  endpoint.log = spec.log;
  // Known to nobody without our key, and the same for ever: equal values stay equal.
  if (spec.log && !spec.log->columns.empty())
    endpoint.salt = crypto::sha256(parts_.models.signer().sign(as_bytes("prediction log of " + scope))).hex();
  if (spec.features && !spec.stopped)
    endpoint.features = plan_features(parts_.online, parts_.resources, where, spec.features->service, making.spaces);
  std::vector<const File*> files;
  bool awaits = false;
  for (const auto& variant : spec.variants) {
    try {
      const auto version = variant.version ? parts_.models.version(where, variant.model, *variant.version)
                                           : parts_.models.by_alias(where, variant.model, variant.alias);
      const auto found = file_of(where, version, making);
      if (!found.trouble.empty()) making.made.problems.push_back({scope, variant.name, found.trouble});
      if (!found.file) {
        awaits = true;
        continue;
      }
      files.push_back(found.file);
      endpoint.variants.push_back({variant.name, version.model, version.number, found.file->statement.sha256,
                                   variant.weight, variant.shadow, variant.match ? lower(variant.match->header) : "",
                                   variant.match ? variant.match->value : ""});
    } catch (const Error& e) {
      making.made.problems.push_back({scope, variant.name, e.what()});
    }
  }
  making.declared.emplace(scope, stored);
  if (awaits) return keep_as_it_was(std::move(endpoint), making);
  if (!spec.stopped)
    for (const auto* file : files) add_model(*file, making);
  making.plan.endpoints.push_back(std::move(endpoint));
}

// An endpoint is watched by as many rows as the most curious of its monitors asks for.
void Endpoints::add_watching(traffic::Plan& plan) const {
  if (!parts_.resources.registry().find(kMonitorKind)) return;
  resource::ListOptions options;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list(kMonitorKind, options, kAnything);
    for (const auto& stored : page.items) {
      const auto said = monitored(stored.resource.spec);
      const auto& metadata = stored.resource.metadata;
      for (auto& endpoint : plan.endpoints) {
        if (!said || endpoint.tenant != metadata.tenant || endpoint.project != metadata.project ||
            endpoint.name != said->endpoint)
          continue;
        auto& watch = endpoint.watch ? *endpoint.watch : endpoint.watch.emplace(said->watching);
        watch.rows_per_second = std::max(watch.rows_per_second, said->watching.rows_per_second);
        watch.segment_rows = std::min(watch.segment_rows, said->watching.segment_rows);
        watch.whole_rows = std::max(watch.whole_rows, said->watching.whole_rows);
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
}

void Endpoints::add_callers(traffic::Plan& plan) const {
  const auto now = parts_.clock.wall().count();
  for (const auto& row : parts_.directory.token_rows()) {
    if (row.expires_us <= now) continue;
    traffic::Caller caller{row.id.str(), row.secret_hash.hex(), row.expires_us, {}};
    const auto snapshot = parts_.directory.snapshot();
    if (!snapshot->active(row.principal)) continue;
    const iam::Identity identity{snapshot->with_groups(row.principal), "", row.restrictions, std::nullopt};
    for (std::size_t i = 0; i < plan.endpoints.size(); ++i) {
      const auto& endpoint = plan.endpoints[i];
      if (!parts_.directory.allows(identity, kInfer, scope_of(endpoint.tenant, endpoint.project, endpoint.name)))
        continue;
      caller.endpoints.push_back(static_cast<std::int64_t>(i));
      if (may_see_features(parts_.directory, identity, endpoint))
        caller.explains.push_back(static_cast<std::int64_t>(i));
    }
    if (!caller.endpoints.empty()) plan.callers.push_back(std::move(caller));
  }
  std::sort(plan.callers.begin(), plan.callers.end(),
            [](const auto& a, const auto& b) { return a.credential < b.credential; });
}

Endpoints::Current Endpoints::make() {
  Making making;
  resource::ListOptions options;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list("Endpoint", options, kAnything);
    for (const auto& stored : page.items) add_endpoint(stored, making);
    options.cursor = page.next;
  } while (!options.cursor.empty());
  add_watching(making.plan);
  std::sort(making.plan.endpoints.begin(), making.plan.endpoints.end(), [](const auto& a, const auto& b) {
    return std::tie(a.tenant, a.project, a.name) < std::tie(b.tenant, b.project, b.name);
  });
  add_callers(making.plan);
  record(making.plan, making.declared);
  making.made.fingerprint = traffic::fingerprint(making.plan);
  endpoints_gauge_.Set(static_cast<double>(making.plan.endpoints.size()));
  making.made.plan = std::make_shared<const traffic::Plan>(std::move(making.plan));
  Lock lock(mu_);
  if (current_.fingerprint != making.made.fingerprint) changed_.notify_all();
  current_ = making.made;
  by_digest_ = std::move(making.by_digest);
  spaces_ = std::move(making.spaces);
  unread_ = std::move(making.unread);
  std::erase_if(unreadable_, [&](const auto& entry) REQUIRES(mu_) { return !unread_.contains(entry.first); });
  if (!unread_.empty()) changed_.notify_all();
  return making.made;
}

Endpoints::Current Endpoints::current() {
  const auto writes = writes_();  // before the plan is made: what is written meanwhile is looked at the next time
  const auto now = parts_.clock.now();
  // What others keep in memory of a write is there a moment after it is counted: so a plan is looked at once more.
  bool again = false;
  std::int64_t reads = 0;
  {
    Lock lock(mu_);
    reads = reads_;
    again = writes == seen_writes_ && reads == seen_reads_;
    if (again && (settled_ || now - seen_at_ < sys::Micros(kLookUs))) return current_;
  }
  Lock making(making_);
  auto made = make();
  Lock lock(mu_);
  if (!again) seen_at_ = now;
  settled_ = again;
  seen_writes_ = writes;
  seen_reads_ = reads;
  return made;
}

std::unique_ptr<blob::ObjectReader> Endpoints::open_model(const std::string& sha256) {
  current();
  std::optional<std::pair<Where, vault::Entry>> found;
  {
    Lock lock(mu_);
    if (const auto at = by_digest_.find(sha256); at != by_digest_.end()) found = at->second;
  }
  if (!found) throw Error(Code::not_found, "no such model in the serving plan: " + sha256.substr(0, 64));
  return parts_.vault.open(found->first, found->second, 0, found->second.bytes);
}

std::pair<traffic::SpaceKeys, PlannedSpace> Endpoints::share(const std::string& space) {
  current();
  std::optional<PlannedSpace> found;
  {
    Lock lock(mu_);
    if (const auto at = spaces_.find(space); at != spaces_.end()) found = at->second;
  }
  if (!found) throw Error(Code::not_found, "no such space in the serving plan: " + space.substr(0, 64));
  return {share_space(parts_.online, space, *found), *found};
}

// "none": it never served.
std::string& Endpoints::last_recorded(const traffic::Endpoint& endpoint) {
  auto& last = recorded_[scope_of(endpoint.tenant, endpoint.project, endpoint.name).str()];
  if (last.empty())
    last = parts_.database
               .read([&](sql::Reader& r) {
                 return r.first(
                     "SELECT variants FROM serving_state WHERE tenant = ? AND project = ? AND endpoint = ? "
                     "ORDER BY number DESC LIMIT 1",
                     {endpoint.tenant, endpoint.project, endpoint.name},
                     [](const sql::Row& row) { return std::string(row.text(0)); });
               })
               .value_or("none");
  return last;
}

// Writes down what is served when it is not what was written last, so that it can be asked of any time.
void Endpoints::record(const traffic::Plan& plan, const std::map<std::string, resource::Stored>& declared) {
  for (const auto& endpoint : plan.endpoints) {
    const auto scope = scope_of(endpoint.tenant, endpoint.project, endpoint.name).str();
    const auto variants =
        json::serialize(encode(endpoint.stopped ? std::vector<traffic::Variant>() : endpoint.variants));
    auto& last = last_recorded(endpoint);
    if (last == variants) continue;
    const auto& stored = declared.at(scope);
    auto why = fmt::format("revision {}", stored.revision);
    {
      Lock lock(mu_);
      if (const auto told = whys_.find(scope); told != whys_.end()) {
        why = std::move(told->second);
        whys_.erase(told);
      }
    }
    parts_.database.write({"system/serving", "endpoint.serve", scope, ""}, [&](sql::Writer& w) {
      const auto number = w.first("SELECT COALESCE(MAX(number), 0) + 1 FROM serving_state", {},
                                  [](const sql::Row& row) { return row.integer(0); });
      w.execute(
          "INSERT INTO serving_state(number, tenant, project, endpoint, at_us, revision, variants, served_by, why) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
          {*number, endpoint.tenant, endpoint.project, endpoint.name, parts_.clock.wall().count(), stored.revision,
           variants, stored.actor, why});
      w.record({scope, std::nullopt, crypto::sha256(variants)});
    });
    last = variants;
  }
}

std::optional<std::vector<ServedVersion>> versions_of(sql::Reader& reader, const Where& where,
                                                      const std::string& endpoint) {
  const auto state = reader.first(
      "SELECT number, at_us, revision, variants, served_by, why FROM serving_state WHERE tenant = ? AND project = ? "
      "AND endpoint = ? ORDER BY number DESC LIMIT 1",
      {where.tenant.str(), where.project.str(), endpoint}, read_state);
  if (!state) return std::nullopt;
  std::vector<ServedVersion> out;
  for (const auto& variant : state->variants) out.emplace_back(variant.model, variant.version);
  return out;
}

std::vector<std::string> endpoints_of(sql::Reader& reader, const Where& where, const std::string& model,
                                      std::int64_t version) {
  const auto names = reader.all(
      "SELECT DISTINCT endpoint FROM serving_state WHERE tenant = ? AND project = ? ORDER BY endpoint",
      {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return std::string(row.text(0)); });
  std::vector<std::string> out;
  for (const auto& name : names) {
    const auto served = versions_of(reader, where, name);
    if (served && std::ranges::find(*served, ServedVersion(model, version)) != served->end()) out.push_back(name);
  }
  return out;
}

std::vector<Served> Endpoints::history(const Where& where, const std::string& endpoint, std::size_t limit) {
  current();
  return parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT number, at_us, revision, variants, served_by, why FROM serving_state WHERE tenant = ? AND project = ? "
        "AND endpoint = ? ORDER BY number DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), endpoint, static_cast<std::int64_t>(limit)}, read_state);
  });
}

std::optional<Served> Endpoints::served_at(const Where& where, const std::string& endpoint, std::int64_t unix_us) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT number, at_us, revision, variants, served_by, why FROM serving_state WHERE tenant = ? AND project = ? "
        "AND endpoint = ? AND at_us <= ? ORDER BY number DESC LIMIT 1",
        {where.tenant.str(), where.project.str(), endpoint, unix_us}, read_state);
  });
}

void Endpoints::report(ServerReport report) {
  report.at_us = parts_.clock.wall().count();
  Lock lock(mu_);
  if (!reports_.contains(report.server) && reports_.size() >= kServersMax)
    throw Error(Code::exhausted, fmt::format("more than {} serving programs report", kServersMax));
  auto name = report.server;
  reports_[std::move(name)] = std::move(report);
  std::erase_if(reports_,
                [&](const auto& entry) { return entry.second.at_us + report_life_us() < parts_.clock.wall().count(); });
}

std::vector<ServerReport> Endpoints::reports() const {
  std::vector<ServerReport> out;
  Lock lock(mu_);
  for (const auto& [name, report] : reports_)
    if (report.at_us + report_life_us() >= parts_.clock.wall().count()) out.push_back(report);
  return out;
}

resource::Stored Endpoints::declare(resource::Stored stored, const EndpointSpec& spec, sql::Act act,
                                    const resource::Authorise& authorise, const std::string& why) {
  const auto key = stored.resource.key();
  stored.resource.spec = encode(spec);
  auto body = stored.resource.body().as_object();
  body["metadata"].as_object()["revision"] = stored.revision;  // what changed meanwhile must not be undone unseen
  const std::vector<resource::Document> documents = {resource::json_document("endpoint", body)};
  act.details = json::serialize(json::object{{"why", why}});
  {
    Lock lock(mu_);
    whys_[key.scope().str()] = why;
  }
  parts_.resources.apply(act, documents, authorise);
  current();
  {
    Lock lock(mu_);
    whys_.erase(key.scope().str());
  }
  return parts_.resources.get(key);
}

resource::Stored Endpoints::shift(const Where& where, const std::string& endpoint, const ScheduledShift& to,
                                  const sql::Act& act, const resource::Authorise& authorise) {
  auto stored = parts_.resources.get(key_of(where, endpoint));
  auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
  if (!to.at.empty()) {
    spec.schedule.push_back(to);
    return declare(std::move(stored), spec, act, authorise, "shares will be shifted at " + to.at);
  }
  for (const auto& [name, weight] : to.weights) {
    const auto same = [&, called = name](const VariantSpec& v) { return v.name == called; };
    const auto found = std::find_if(spec.variants.begin(), spec.variants.end(), same);
    if (found == spec.variants.end())
      throw Error(Code::not_found, fmt::format("endpoint {} has no variant '{}'", endpoint, name));
    found->weight = weight;
  }
  return declare(std::move(stored), spec, act, authorise, "shares were shifted");
}

resource::Stored Endpoints::rollback(const Where& where, const std::string& endpoint, std::int64_t to,
                                     const sql::Act& act, const resource::Authorise& authorise) {
  parts_.resources.get(key_of(where, endpoint));  // not_found
  const auto past = history(where, endpoint, kPastMax);
  const auto now = past.empty() ? std::vector<traffic::Variant>() : past.front().variants;
  const auto wanted = std::find_if(past.begin(), past.end(), [&](const Served& served) {
    return to > 0 ? served.number == to : !served.variants.empty() && encode(served.variants) != encode(now);
  });
  if (wanted == past.end() || wanted->variants.empty())
    throw Error(Code::conflict, to > 0 ? fmt::format("endpoint {} has no state {} to go back to", endpoint, to)
                                       : fmt::format("endpoint {} was never served otherwise", endpoint));
  return restore(where, endpoint, *wanted, act, authorise, fmt::format("rolled back to state {}", wanted->number));
}

resource::Stored Endpoints::restore(const Where& where, const std::string& endpoint, const Served& wanted,
                                    const sql::Act& act, const resource::Authorise& authorise, const std::string& why) {
  auto stored = parts_.resources.get(key_of(where, endpoint));
  auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
  spec.stopped = false;
  spec.canary.reset();
  spec.schedule.clear();  // what was planned for the state that is left
  const bool has_baseline =
      spec.experiment && std::any_of(wanted.variants.begin(), wanted.variants.end(),
                                     [&](auto& v) { return v.name == spec.experiment->baseline && !v.shadow; });
  if (!has_baseline) spec.experiment.reset();  // nothing to compare with
  spec.variants.clear();
  for (const auto& v : wanted.variants) {
    VariantSpec variant{v.name, v.model, v.version, "", v.weight, v.shadow, std::nullopt};
    if (!v.header.empty()) variant.match = MatchSpec{v.header, v.value};
    spec.variants.push_back(std::move(variant));
  }
  return declare(std::move(stored), spec, act, authorise, why);
}

}  // namespace falaj::serving
