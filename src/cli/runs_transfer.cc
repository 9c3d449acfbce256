// SPDX-License-Identifier: Apache-2.0
// run export, import: runs from one platform to another, as one signed file

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/runs.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

struct TransferOptions {
  std::string file, filter, key, experiment;
  std::vector<std::string> runs, experiments;
};

void export_runs(Session& session, const TransferOptions& options) {
  json::array runs;
  for (const auto& run : options.runs) runs.push_back(json::value(run_id_of(session, run)));
  json::array experiments;
  for (const auto& experiment : options.experiments) experiments.push_back(json::value(experiment));
  const json::value body{{"runs", runs}, {"experiments", experiments}, {"filter", options.filter}};
  const client::Query query{{"scope", session.project_scope()}};
  ResultFile file(options.file);
  std::optional<Progress> progress;
  std::uint64_t bytes = 0;
  session.api().download(
      net::Method::post, "/v1/runs/export", query, &body,
      [&](auto size) {
        progress.emplace("exporting runs", size.value_or(0), Progress::Unit::bytes, session.clock(), session.quiet);
      },
      [&](BytesView piece) {
        file.write(piece);
        bytes += piece.size();
        progress->add(piece.size());
      });
  file.keep();
  progress->finish();
  auto said = session.api().get("/v1/runs/export/key", query).as_object();
  said["file"] = options.file;
  said["bytes"] = bytes;
  session.output().details(
      said, {{"exported to", "file"}, {"bytes", "bytes", Column::As::bytes}, {"signed by", "public_key"}});
}

void import_runs(Session& session, const TransferOptions& options) {
  std::ifstream in(options.file, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(options.file))
    throw Error(Code::not_found, fmt::format("cannot read {}", options.file));
  const auto size = std::filesystem::file_size(options.file);
  client::Query query{{"scope", session.project_scope()}};
  if (!options.key.empty()) query.emplace_back("key", options.key);
  if (!options.experiment.empty()) query.emplace_back("experiment", options.experiment);
  Progress progress("importing " + options.file, size, Progress::Unit::bytes, session.clock(), session.quiet);
  const auto done = session.api().upload(
      "/v1/runs/import", query,
      [&] {
        Bytes piece(kPieceBytes);
        in.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
        piece.resize(static_cast<std::size_t>(in.gcount()));
        progress.add(piece.size());
        return piece;
      },
      size);
  progress.finish();
  session.output().details(done, {{"runs in the file", "runs"},
                                  {"new", "made"},
                                  {"changed", "changed"},
                                  {"new points", "points"},
                                  {"new files", "files"},
                                  {"bytes of those", "bytes", Column::As::bytes},
                                  {"new experiments", "experiments"}});
}

}  // namespace

void add_transfer_commands(CLI::App& run, Session& session) {
  const auto options = std::make_shared<TransferOptions>();
  auto* out = run.add_subcommand("export", "Write runs with everything they logged to one signed file");
  out->add_option("file", options->file, "Where to; any tar reads it")->required();
  out->add_option("runs", options->runs, "Runs by id, or by a name that only one has; all active ones when absent");
  out->add_option("-e,--experiment", options->experiments, "All of this experiment; may be repeated");
  out->add_option("-f,--filter", options->filter, "Those that a filter finds, such as \"metrics.loss < 0.3\"");
  out->callback([&session, options] { export_runs(session, *options); });

  auto* in = run.add_subcommand("import", "Merge an exported file: verified first, and again changes nothing");
  in->add_option("file", options->file, "What export wrote")->required();
  in->add_option("--key", options->key, "Trust this key of another platform, 64 hexadecimal digits");
  in->add_option("--experiment", options->experiment, "Put new runs there (default: the experiment they were in)");
  in->callback([&session, options] { import_runs(session, *options); });
}

}  // namespace falaj::cli
