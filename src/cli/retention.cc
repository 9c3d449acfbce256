// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

void print_report(const Output& output, const json::value& report) {
  output.details(report, {{"runs archived", "archived_runs"},
                          {"runs removed", "removed_runs"},
                          {"experiments removed", "removed_experiments"},
                          {"logged models removed", "removed_models"},
                          {"blobs removed", "removed_blobs"},
                          {"files", "files"},
                          {"bytes", "bytes", As::bytes},
                          {"kept", "kept"}});
  if (const auto& freed = at_path(report, "freed_bytes"); freed.is_int64())
    output.line(fmt::format("the store freed {}", format_bytes(static_cast<std::uint64_t>(freed.as_int64()))));
  if (const auto& rows = at_path(report, "erased_rows"); rows.is_int64() && rows.as_int64() > 0)
    output.line(fmt::format("rows about people that are past their dataset's retention: {}", rows.as_int64()));
  if (report.at("more").as_bool()) output.line("there is more: run it again, or wait for the server's next pass");
}

void print_kept(const Output& output, const json::value& report) {
  for (const auto& kept : report.at("reasons").as_array())
    output.line(
        fmt::format("kept {}: {}", harmless(kept.at("resource").as_string()), harmless(kept.at("why").as_string())));
}

void print_status(Session& session) {
  const auto status = session.api().get("/v1/retention", {{"scope", session.scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(status);
  const auto& due = status.at("due");
  const auto& last = at_path(status, "last_pass_us");
  output.line(fmt::format("policies: {}; last pass: {}", due.at("policies").as_int64(),
                          last.is_int64() ? format_time(last.as_int64()) : "none yet"));
  if (due.at("policies").as_int64() == 0 && at_path(due, "erased_rows") == json::value(0))
    return output.line("without a policy nothing is removed by itself");
  output.line("due now:");
  print_report(output, due);
  if (!due.at("by_policy").as_array().empty())
    output.table(due.at("by_policy").as_array(),
                 {{"policy", "policy"}, {"archive", "archived"}, {"remove", "removed"}, {"bytes", "bytes", As::bytes}});
  print_kept(output, due);
}

}  // namespace

void add_retention_commands(CLI::App& app, Session& session) {
  auto* retention = app.add_subcommand("retention", "What retention policies remove, and when");
  retention->require_subcommand(1);
  retention->add_subcommand("status", "Policies, the last pass, what is due and what is kept although it is due")
      ->callback([&session] { print_status(session); });
  auto dry = std::make_shared<bool>(false);
  auto* run = retention->add_subcommand("run", "Do now what the policies say");
  run->add_flag("--dry-run", *dry, "Only say what would be done");
  run->callback([&session, dry] {
    const auto report = session.api().post("/v1/retention/run", {{"dry_run", *dry}}, {{"scope", session.scope()}});
    const auto output = session.output();
    if (!output.for_people()) return output.value(report);
    print_report(output, report);
    print_kept(output, report);
  });
}

}  // namespace falaj::cli
