// SPDX-License-Identifier: Apache-2.0
// queue, usage, job top

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/jobs.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

const std::vector<Column> kQueueColumns = {{"QUEUE", "name"},      {"PARENT", "parent"},        {"WEIGHT", "weight"},
                                           {"WAITING", "pending"}, {"RUNNING", "running"},      {"CPUS", "cpus"},
                                           {"GPUS", "gpus"},       {"MEMORY GIB", "memory_gib"}};
const std::vector<Column> kNodeColumns = {{"NODE", "name"},
                                          {"UP", "up"},
                                          {"ZONE", "zone"},
                                          {"POOL", "pool"},
                                          {"CPUS", "cpus"},
                                          {"FREE", "cpus_free"},
                                          {"GPUS", "gpus"},
                                          {"FREE", "gpus_free"},
                                          {"MEMORY", "memory_bytes", Column::As::bytes},
                                          {"FREE", "memory_free_bytes", Column::As::bytes}};

json::array items_of(Session& session, const std::string& path) {
  return session.api().get(path, {{"scope", session.project_scope()}}).at("items").as_array();
}

void show_queue(Session& session, const std::string& name) {
  for (const auto& queue : items_of(session, "/v1/queues")) {
    if (queue.at("name").as_string() != name) continue;
    session.output().details(queue, {{"queue", "name"},
                                     {"parent", "parent"},
                                     {"weight", "weight"},
                                     {"waiting", "pending"},
                                     {"running", "running"},
                                     {"cpus held", "cpus"},
                                     {"gpus held", "gpus"},
                                     {"memory held, GiB", "memory_gib"}});
    return;
  }
  throw Error(Code::not_found, fmt::format("no queue '{}' that this project may use", name));
}

void add_pool_commands(CLI::App& app, Session& session) {
  auto* pool = app.add_subcommand("pool", "Node pools: nodes that are there, that come and that go");
  pool->require_subcommand(1);
  pool->add_subcommand("ls", "Node pools")->callback([&session] {
    session.output().table(items_of(session, "/v1/pools"), {{"POOL", "name"},
                                                            {"SCALING", "scaling"},
                                                            {"ZONE", "zone"},
                                                            {"UP", "up"},
                                                            {"BUSY", "busy"},
                                                            {"WANTED", "wanted"},
                                                            {"MIN", "min"},
                                                            {"MAX", "max"},
                                                            {"COST/H", "cost_per_hour"},
                                                            {"SPENT", "spent"},
                                                            {"WHY", "why"}});
  });
  const auto name = std::make_shared<std::string>();
  auto* show = pool->add_subcommand("show", "One node pool, and what happened to it");
  show->add_option("name", *name, "Its name")->required();
  show->callback([&session, name] {
    const auto answer =
        session.api().get("/v1/pools/" + client::path_element(*name), {{"scope", session.project_scope()}});
    const auto output = session.output();
    if (!output.for_people()) return output.value(answer);
    auto details = answer.at("pool").as_object();
    details["nodes"] = answer.at("nodes");
    output.details(details, {{"pool", "name"},
                             {"scaling", "scaling"},
                             {"zone", "zone"},
                             {"nodes", "nodes"},
                             {"up", "up"},
                             {"busy", "busy"},
                             {"coming", "coming"},
                             {"leaving", "leaving"},
                             {"at least", "min"},
                             {"at most", "max"},
                             {"only in need", "burst"},
                             {"cost per hour", "cost_per_hour"},
                             {"spent", "spent"},
                             {"since", "spent_since"},
                             {"at most a day", "spend_max"},
                             {"changed", "changed"},
                             {"rests until", "not_before"},
                             {"why", "why"}});
    output.line("");
    output.table(answer.at("events").as_array(),
                 {{"TIME", "at"}, {"WHAT", "what"}, {"NODES", "nodes"}, {"WHY", "why"}});
  });
}

struct UsageOptions {
  std::string by = "project", since, until;
};

void usage(Session& session, const UsageOptions& o) {
  client::Query query{{"scope", session.scope()}, {"by", o.by}};
  if (!o.since.empty()) {
    // "30d" is as good as a date.
    const auto span = parse_duration_us(o.since);
    query.emplace_back("since", span ? format_time(session.clock().wall().count() - *span) : o.since);
  }
  if (!o.until.empty()) query.emplace_back("until", o.until);
  auto answer = session.api().get("/v1/usage", query);
  if (!session.output().for_people()) return session.output().value(answer);
  json::array rows;
  for (const auto& item : answer.at("items").as_array()) {
    const auto hours = [&](const char* key) { return fmt::format("{:.2f}", item.at(key).to_number<double>() / 3600); };
    rows.push_back(json::object{{"key", item.at("key")},
                                {"jobs", item.at("jobs")},
                                {"attempts", item.at("attempts")},
                                {"used", hours("cpu_seconds")},
                                {"held", hours("cpu_allocated_seconds")},
                                {"gpu", hours("gpu_seconds")},
                                {"memory", hours("memory_gib_seconds")},
                                {"cost", fmt::format("{:.2f}", item.at("cost").to_number<double>())},
                                {"energy", fmt::format("{:.2f}", item.at("energy_joules").to_number<double>() / 3600)},
                                {"lost", hours("lost_seconds")}});
  }
  session.output().table(rows, {{"BY", "key"},
                                {"JOBS", "jobs"},
                                {"ATTEMPTS", "attempts"},
                                {"CPU H USED", "used"},
                                {"CPU H HELD", "held"},
                                {"GPU H", "gpu"},
                                {"GIB H", "memory"},
                                {"WH", "energy"},
                                {"COST", "cost"},
                                {"CPU H LOST", "lost"}});
}

}  // namespace

void add_top_command(CLI::App& job, Session& session) {
  job.add_subcommand("top", "Nodes, queues and what runs now")->callback([&session] {
    const auto nodes = items_of(session, "/v1/nodes"), queues = items_of(session, "/v1/queues");
    const auto jobs = session.api()
                          .get("/v1/jobs", {{"scope", session.project_scope()}, {"live", "true"}, {"limit", "30"}})
                          .at("items")
                          .as_array();
    const auto output = session.output();
    if (!output.for_people()) return output.value(json::object{{"nodes", nodes}, {"queues", queues}, {"jobs", jobs}});
    output.table(nodes, kNodeColumns);
    output.line("");
    output.table(queues, kQueueColumns);
    output.line("");
    output.table(jobs, {{"JOB", "id"},
                        {"NAME", "name"},
                        {"PHASE", "phase"},
                        {"QUEUE", "queue"},
                        {"OWNER", "owner"},
                        {"NODES", "nodes"},
                        {"STARTED", "started"}});
  });
}

void add_queue_commands(CLI::App& app, Session& session) {
  auto* queue = app.add_subcommand("queue", "Queues that jobs wait in");
  queue->require_subcommand(1);
  queue->add_subcommand("ls", "Queues and what waits in them")->callback([&session] {
    session.output().table(items_of(session, "/v1/queues"), kQueueColumns);
  });
  const auto name = std::make_shared<std::string>();
  auto* show = queue->add_subcommand("show", "One queue");
  show->add_option("name", *name, "Its name")->required();
  show->callback([&session, name] { show_queue(session, *name); });

  add_pool_commands(app, session);

  const auto options = std::make_shared<UsageOptions>();
  auto* used = app.add_subcommand("usage", "What jobs held and used");
  used->add_option("--by", options->by, "tenant, project, owner, queue or job")
      ->capture_default_str()
      ->check(CLI::IsMember({"tenant", "project", "owner", "queue", "job"}));
  used->add_option("--since", options->since, "A time, or how long ago, such as 7d (default 30d)");
  used->add_option("--until", options->until, "A time; now when absent");
  used->callback([&session, options] { usage(session, *options); });
}

}  // namespace falaj::cli
