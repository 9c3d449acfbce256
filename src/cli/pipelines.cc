// SPDX-License-Identifier: Apache-2.0
// pipeline

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/pipeline_graph.h"
#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr std::chrono::milliseconds kRunLookEvery{150};

client::Query pipeline_scope(Session& session) { return {{"scope", session.project_scope()}}; }

std::string pipeline_path(const std::string& name, std::string_view more = "") {
  return fmt::format("/v1/pipelines/{}{}", client::path_element(name), more);
}
std::string flow_run_path(const std::string& id, std::string_view more = "") {
  return fmt::format("/v1/pipeline-runs/{}{}", client::path_element(id), more);
}

// A run by its id, by NAME/NUMBER, or the newest one of NAME.
json::value find_run(Session& session, const std::string& text) {
  const auto slash = text.rfind('/');
  if (slash != std::string::npos) {
    const auto number = parse_int(text.substr(slash + 1));
    if (!number || *number < 1)
      throw Error(Code::invalid, fmt::format("'{}': a run is its id, NAME/NUMBER, or NAME for the newest", text));
    return session.api().get(pipeline_path(text.substr(0, slash), fmt::format("/runs/{}", *number)),
                             pipeline_scope(session));
  }
  try {
    return session.api().get(flow_run_path(text), pipeline_scope(session));
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  return session.api().get(pipeline_path(text, "/runs/0"), pipeline_scope(session));
}
std::string run_id(Session& session, const std::string& text) {
  return std::string(find_run(session, text).at("id").as_string());
}

bool run_is_over(const json::value& run) {
  const std::string_view phase = run.at("phase").as_string();
  return phase == "succeeded" || phase == "failed" || phase == "cancelled";
}

const std::vector<Column> kRunColumns = {{"RUN", "id"},      {"PIPELINE", "pipeline"}, {"NUMBER", "number"},
                                         {"PHASE", "phase"}, {"DONE", "steps_done"},   {"OF", "steps_all"},
                                         {"OWNER", "owner"}, {"STARTED", "created"},   {"WHY", "why"}};
const std::vector<Column> kRunDetails = {{"run", "id"},
                                         {"pipeline", "pipeline"},
                                         {"number", "number"},
                                         {"phase", "phase"},
                                         {"why", "why"},
                                         {"owner", "owner"},
                                         {"cause", "cause"},
                                         {"parameters", "parameters"},
                                         {"revision", "revision"},
                                         {"asked", "created"},
                                         {"began", "began"},
                                         {"ended", "ended"},
                                         {"tracked as", "run_id"}};

void print_run(Session& session, const json::value& run) {
  const auto output = session.output();
  if (!output.for_people()) return output.value(run);
  output.details(run, kRunDetails);
  output.raw("\n" + graph_text(run.at("steps").as_array(), false));
}

// The graph, drawn anew while it changes, on a terminal; elsewhere a line for each change.
class LiveGraph {
 public:
  explicit LiveGraph(Session& session)
      : session_(session), drawn_here_(!session.quiet && session.output().for_people() && isatty(STDOUT_FILENO) == 1) {}

  void show(const json::value& run) {
    const auto& steps = run.at("steps").as_array();
    if (drawn_here_) return draw(steps);
    for (const auto& step : steps) {
      const std::string id(step.at("id").as_string()), phase(step.at("phase").as_string());
      auto& seen = seen_[id];
      if (seen == phase || phase == "waiting") continue;
      seen = phase;
      const std::string why(step.at("why").as_string());
      if (session_.output().for_people())
        session_.output().raw(harmless(fmt::format("{}: {}{}", id, phase, why.empty() ? "" : ": " + why)) + "\n");
    }
    std::fflush(stdout);
  }

 private:
  void draw(const json::array& steps) {
    const auto text = graph_text(steps, true);
    if (text == last_) return;
    winsize size{};
    const int high = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row - 2 : 22;
    const auto many = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    // More lines than the window has cannot be gone back to: then each state stands below the one before.
    if (!last_.empty() && many <= high) fmt::print("\033[{}A\033[J", many);
    fmt::print("\033[?7l{}\033[?7h", text);  // long lines are cut, not wrapped
    std::fflush(stdout);
    last_ = text;
  }

  Session& session_;
  const bool drawn_here_;
  std::string last_;
  std::map<std::string, std::string> seen_;
};

// Until the run has ended, or asks somebody. Ends as it does.
void follow_run(Session& session, const std::string& id) {
  LiveGraph graph(session);
  for (;;) {
    const auto run = session.api().get(flow_run_path(id), pipeline_scope(session));
    graph.show(run);
    if (run_is_over(run)) {
      if (!session.output().for_people()) session.output().value(run);
      const std::string phase(run.at("phase").as_string()), why(run.at("why").as_string());
      session.output().line(harmless(fmt::format("{}{}", phase, why.empty() ? "" : ": " + why)));
      if (phase != "succeeded") session.status = EXIT_FAILURE;
      return;
    }
    std::this_thread::sleep_for(kRunLookEvery);
  }
}

json::object parameters_given(const std::vector<std::string>& given) {
  json::object out;
  for (const auto& text : given) {
    const auto equals = text.find('=');
    if (equals == std::string::npos) throw Error(Code::invalid, fmt::format("--param: '{}' must be NAME=VALUE", text));
    out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

struct RunPipelineOptions {
  std::string name, key;
  std::vector<std::string> parameters;
  bool wait = false, fresh = false;
};

void run_pipeline(Session& session, const RunPipelineOptions& o) {
  json::object body{{"parameters", parameters_given(o.parameters)}, {"fresh", o.fresh}};
  if (!o.key.empty()) body["key"] = o.key;
  const auto run = session.api().post(pipeline_path(o.name, "/run"), body, pipeline_scope(session));
  const std::string id(run.at("id").as_string());
  if (o.wait) return follow_run(session, id);
  if (!session.output().for_people()) return session.output().value(run);
  session.output().line(id);
}

void print_logs(Session& session, const std::string& text, const std::string& wanted) {
  const auto run = find_run(session, text);
  bool any = false;
  for (const auto& step : run.at("steps").as_array()) {
    const auto& job = at_path(step, "job");
    const std::string id(step.at("id").as_string());
    if (!wanted.empty() && wanted != id && wanted != std::string_view(step.at("name").as_string())) continue;
    if (!job.is_string()) continue;
    any = true;
    if (wanted.empty()) session.output().raw(fmt::format("== {} ({})\n", id, std::string_view(job.get_string())));
    for (std::int64_t offset = 0;;) {
      auto query = pipeline_scope(session);
      query.emplace_back("offset", std::to_string(offset));
      const auto page = session.api().get(
          fmt::format("/v1/jobs/{}/logs", client::path_element(std::string(job.get_string()))), query);
      session.output().raw(page.at("text").as_string());
      if (page.at("next_offset").as_int64() <= offset) break;
      offset = page.at("next_offset").as_int64();
    }
  }
  if (!any)
    throw Error(Code::not_found,
                wanted.empty() ? "no step of this run was a job" : fmt::format("step '{}' was no job", wanted));
}

void print_graph(Session& session, const std::string& text, const std::string& svg) {
  std::string title = text;
  json::array steps;
  try {
    const auto run = find_run(session, text);
    steps = run.at("steps").as_array();
    title = fmt::format("{} {}: {}", std::string_view(run.at("pipeline").as_string()), run.at("number").as_int64(),
                        std::string_view(run.at("phase").as_string()));
  } catch (const Error& e) {
    if (e.code() != Code::not_found || text.find('/') != std::string::npos) throw;
    steps = session.api().get(pipeline_path(text), pipeline_scope(session)).at("steps").as_array();
  }
  if (!svg.empty()) {
    ResultFile file(svg);
    const auto picture = graph_svg(steps, title);
    file.write(as_bytes(picture));
    file.keep();
    return session.output().line(fmt::format("wrote {}", svg));
  }
  if (!session.output().for_people()) return session.output().value(steps);
  session.output().raw(graph_text(steps, isatty(STDOUT_FILENO) == 1));
}

void decide(Session& session, const std::string& run, const std::string& step, bool approve, const std::string& why) {
  const auto answer = session.api().post(
      flow_run_path(run_id(session, run), fmt::format("/steps/{}/decide", client::path_element(step))),
      json::object{{"approve", approve}, {"why", why}}, pipeline_scope(session));
  if (!session.output().for_people()) return session.output().value(answer);
  session.output().line(fmt::format("{} {}", approve ? "approved" : "rejected", step));
}

void add_pipeline_looks(CLI::App& pipeline, Session& session) {
  auto* ls = pipeline.add_subcommand("ls", "Pipelines, and how their newest runs went");
  ls->callback([&session] {
    const auto answer = session.api().get("/v1/pipelines", pipeline_scope(session));
    session.output().table(answer.at("items").as_array(), {{"PIPELINE", "name"},
                                                           {"STEPS", "steps"},
                                                           {"TRIGGERS", "triggers"},
                                                           {"NEWEST", "last"},
                                                           {"PHASE", "last_phase"},
                                                           {"STARTED", "last_started"}});
  });

  const auto shown = std::make_shared<std::string>();
  auto* show = pipeline.add_subcommand("show", "A run with its steps: its id, NAME/NUMBER, or NAME for the newest");
  show->add_option("RUN", *shown, "Which run")->required();
  show->callback([&session, shown] { print_run(session, find_run(session, *shown)); });

  struct Listed {
    std::string name, phase;
    std::int64_t limit = 20;
  };
  const auto listed = std::make_shared<Listed>();
  auto* runs = pipeline.add_subcommand("runs", "Runs of pipelines, newest first");
  runs->add_option("NAME", listed->name, "Only of this pipeline");
  runs->add_option("--phase", listed->phase, "Only those in it, such as running");
  runs->add_option("--limit", listed->limit, "At most so many")->capture_default_str();
  runs->callback([&session, listed] {
    auto query = pipeline_scope(session);
    if (!listed->name.empty()) query.emplace_back("pipeline", listed->name);
    if (!listed->phase.empty()) query.emplace_back("phase", listed->phase);
    query.emplace_back("limit", std::to_string(listed->limit));
    session.output().table(session.api().get("/v1/pipeline-runs", query).at("items").as_array(), kRunColumns);
  });

  struct Logged {
    std::string run, step;
  };
  const auto logged = std::make_shared<Logged>();
  auto* logs = pipeline.add_subcommand("logs", "What the jobs of a run wrote");
  logs->add_option("RUN", logged->run, "Its id, NAME/NUMBER, or NAME for the newest")->required();
  logs->add_option("STEP", logged->step, "Only of this step");
  logs->callback([&session, logged] { print_logs(session, logged->run, logged->step); });

  struct Drawn {
    std::string run, svg;
  };
  const auto drawn = std::make_shared<Drawn>();
  auto* graph = pipeline.add_subcommand("graph", "The steps as a graph: of a run, or of a pipeline that never ran");
  graph->add_option("RUN", drawn->run, "Its id, NAME/NUMBER, or NAME")->required();
  graph->add_option("--svg", drawn->svg, "Into this file, as a picture");
  graph->callback([&session, drawn] { print_graph(session, drawn->run, drawn->svg); });
}

void add_pipeline_changes(CLI::App& pipeline, Session& session) {
  const auto o = std::make_shared<RunPipelineOptions>();
  auto* run = pipeline.add_subcommand("run", "Begin a run: falaj pipeline run retrain --param from=2001-01-01 -w");
  run->add_option("NAME", o->name, "Which pipeline")->required();
  run->add_option("--param", o->parameters, "NAME=VALUE; may be repeated");
  run->add_option("--key", o->key, "The same key begins one run, however often it is said");
  run->add_flag("--fresh", o->fresh, "Every step runs, whatever was made before");
  run->add_flag("--wait,-w", o->wait, "Show how it goes on, and end as it does");
  run->footer("Steps whose inputs have not changed since an earlier run are not done again: they are 'kept'.");
  run->callback([&session, o] { run_pipeline(session, *o); });

  struct Changed {
    std::string run, step, why;
    bool wait = false;
  };
  const auto cancelled = std::make_shared<Changed>();
  auto* cancel = pipeline.add_subcommand("cancel", "Stop a run and the jobs of its steps");
  cancel->add_option("RUN", cancelled->run, "Its id, NAME/NUMBER, or NAME for the newest")->required();
  cancel->add_option("--why", cancelled->why, "For the history");
  cancel->callback([&session, cancelled] {
    const auto id = run_id(session, cancelled->run);
    const auto answer = session.api().post(flow_run_path(id, "/cancel"), json::object{{"why", cancelled->why}},
                                           pipeline_scope(session));
    if (!session.output().for_people()) return session.output().value(answer);
    session.output().line("told to stop");
  });

  const auto resumed = std::make_shared<Changed>();
  auto* resume = pipeline.add_subcommand("resume", "Go on with a run from the steps that did not succeed");
  resume->add_option("RUN", resumed->run, "Its id, NAME/NUMBER, or NAME for the newest")->required();
  resume->add_flag("--wait,-w", resumed->wait, "Show how it goes on, and end as it does");
  resume->callback([&session, resumed] {
    const auto id = run_id(session, resumed->run);
    const auto answer = session.api().post(flow_run_path(id, "/resume"), json::object{}, pipeline_scope(session));
    if (resumed->wait) return follow_run(session, id);
    if (!session.output().for_people()) return session.output().value(answer);
    session.output().line("goes on");
  });

  for (const bool approve : {true, false}) {
    const auto decided = std::make_shared<Changed>();
    auto* c = pipeline.add_subcommand(approve ? "approve" : "reject",
                                      approve ? "Say yes to a step that asks" : "Say no to a step that asks");
    c->add_option("RUN", decided->run, "Its id, NAME/NUMBER, or NAME for the newest")->required();
    c->add_option("STEP", decided->step, "The step that asks")->required();
    c->add_option("--why", decided->why, "For the history");
    c->callback([&session, decided, approve] { decide(session, decided->run, decided->step, approve, decided->why); });
  }
}

}  // namespace

void add_pipeline_commands(CLI::App& app, Session& session) {
  auto* pipeline = app.add_subcommand("pipeline", "Pipelines: steps that make a model and bring it where it is used");
  pipeline->require_subcommand(1);
  add_apply(*pipeline, session);  // as falaj apply: people look for it here
  add_pipeline_looks(*pipeline, session);
  add_pipeline_changes(*pipeline, session);
}

}  // namespace falaj::cli
