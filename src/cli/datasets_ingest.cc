// SPDX-License-Identifier: Apache-2.0
// dataset create, ingest: bytes in parts, so that a broken upload goes on where it stopped

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/datasets.h"
#include "cli/idx.h"
#include "cli/pictures.h"
#include "cli/progress.h"
#include "foundation/base/text.h"
#include "foundation/base/yaml.h"

namespace falaj::cli {

std::string format_by_name(std::string name) {
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with(".csv")) return "csv";
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return "jsonl";
  if (name.ends_with(".parquet")) return "parquet";
  return "";
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartBytes = 64 << 20;

struct IngestOptions {
  std::string name, from, format, mode = "append", resume, start_at, time, partition, zone, image_size;
  std::vector<std::string> files, key;
  bool time_of_columns = false;  // when no time is said: the only column that can be one
};

struct Input {
  std::string path;  // "-" is standard input
  // Or a directory of images, as CSV of these columns.
  std::function<std::unique_ptr<std::istream>()> images{};
  json::array columns{};
  std::string name() const { return path == "-" ? "standard input" : fs::path(path).filename().string(); }
};

// By the name, else by how the bytes begin.
std::string format_of(const Input& input, std::string_view head) {
  if (input.images) return "csv";
  if (auto format = format_by_name(input.path); !format.empty()) return format;
  if (head.starts_with("PAR1")) return "parquet";
  if (head.starts_with("\x1f\x8b")) throw Error(Code::invalid, "--format: csv or jsonl? the bytes are gzip");
  return trim(head).starts_with('{') ? "jsonl" : "csv";
}

json::array image_columns(const char* label, bool parts) {
  const auto column = [](const char* name, const char* type) {
    return json::object{{"name", name}, {"type", type}, {"nullable", false}};
  };
  json::array out{column("image", "bytes"), column("label", label)};
  if (parts) out.push_back(column("part", "text"));
  return out;
}

// Images as one input, when that is what a directory has.
std::optional<Input> images_of(const std::string& directory, const std::string& size) {
  if (auto pairs = idx_pairs(directory); !pairs.empty())
    return Input{directory, [pairs] { return idx_as_csv(pairs); }, image_columns("int64", true)};
  auto pictures = pictures_in(directory);
  if (pictures.empty()) return std::nullopt;
  const bool parts = !pictures[0].part.empty();
  const auto wanted = size.empty() ? PictureSize{} : parse_picture_size(size);
  return Input{directory, [pictures, wanted] { return pictures_as_csv(pictures, wanted); },
               image_columns("text", parts)};
}

// Files as they are, a directory's in order of their names.
std::vector<Input> inputs_of(const std::vector<std::string>& paths, const std::string& image_size) {
  std::vector<Input> out;
  for (const auto& path : paths) {
    std::error_code error;
    if (path == "-" || fs::is_regular_file(path, error) || fs::is_fifo(path, error)) {
      out.push_back({path});
    } else if (fs::is_directory(path, error)) {
      std::vector<std::string> files;
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.is_regular_file() && !format_by_name(entry.path().string()).empty())
          files.push_back(entry.path().string());
      if (files.empty()) {
        auto images = images_of(path, image_size);
        if (!images)
          throw Error(
              Code::not_found,
              fmt::format("no .csv, .jsonl or .parquet file and no images in IDX, PNG or JPEG files in {}", path));
        out.push_back(std::move(*images));
        continue;
      }
      std::sort(files.begin(), files.end());
      for (auto& file : files) out.push_back({std::move(file)});
    } else {
      throw Error(Code::not_found, fmt::format("cannot read {}", path));
    }
  }
  return out;
}

// One input on its way to the server.
class Upload {
 public:
  Upload(Session& session, std::string dataset, const Input& input, std::string format)
      : session_(session), dataset_(std::move(dataset)), input_(input), format_(std::move(format)) {}

  // `resume`: the id of an upload of the same bytes that broke off; "" begins one.
  void send(const std::string& resume) {
    std::ifstream file;
    std::unique_ptr<std::istream> images;
    if (input_.images)
      images = input_.images();
    else if (input_.path != "-")
      file.open(input_.path, std::ios::binary);
    std::istream& in = images ? *images : input_.path == "-" ? std::cin : file;
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", input_.path));
    std::error_code error;
    const auto size = input_.path == "-" ? 0 : fs::file_size(input_.path, error);
    std::map<std::int64_t, std::uint64_t> there;
    if (resume.empty()) {
      id_ = session_.api().post(dataset_path(dataset_, "/uploads"), json::object{}, query()).at("id").as_string();
    } else {
      id_ = resume;
      for (const auto& part : session_.api().get(path(), query()).at("parts").as_array())
        there[part.at("number").as_int64()] = part.at("bytes").to_number<std::uint64_t>();
    }
    Progress progress("uploading " + input_.name(), error ? 0 : size, Progress::Unit::bytes, session_.clock(),
                      session_.quiet);
    Bytes part(kPartBytes);
    for (std::int64_t number = 0;; ++number) {
      in.read(reinterpret_cast<char*>(part.data()), static_cast<std::streamsize>(part.size()));
      const auto got = static_cast<std::size_t>(in.gcount());
      if (number == 0 && format_.empty())
        format_ = format_of(input_, as_text(BytesView(part).first(std::min<std::size_t>(got, 512))));
      if (got == 0) break;
      const auto known = there.find(number);
      if (known != there.end() && known->second == got)
        progress.add(got);
      else
        put(number, BytesView(part).first(got), progress);
    }
  }

  json::value columns() {
    if (input_.images) return input_.columns;
    auto with = query();
    with.emplace_back("format", format_);
    return session_.api().get(path("/columns"), with).at("columns");
  }

  // The server reads, checks and writes; it is asked now and then how far it is.
  json::value finish(const std::string& mode) {
    auto& api = session_.api();
    const json::value body{{"format", format_}, {"mode", mode}, {"source", input_.name()}};
    return with_progress(
        "making a version of " + input_.name(), session_.clock(), session_.quiet,
        [&] { return api.post(path("/finish"), body, query()); },
        [&] { return api.get(path(), query()).at("done").to_number<double>(); });
  }

  const std::string& id() const { return id_; }

 private:
  client::Query query() { return {{"scope", session_.project_scope()}}; }
  std::string path(std::string_view more = "") const {
    return dataset_path(dataset_, fmt::format("/uploads/{}{}", client::path_element(id_), more));
  }
  void put(std::int64_t number, BytesView part, Progress& progress) {
    std::size_t sent = 0;
    session_.api().upload(
        path(fmt::format("/parts/{}", number)), query(),
        [&] {
          const auto piece = part.subspan(sent, std::min(kPieceBytes, part.size() - sent));
          sent += piece.size();
          progress.add(piece.size());
          return Bytes(piece.begin(), piece.end());
        },
        part.size(), net::Method::put);
  }

  Session& session_;
  const std::string dataset_;
  const Input& input_;
  std::string format_, id_;
};

// An error that another try may not meet says how to go on. What the data or the caller did wrong is only said.
[[noreturn]] void fail(const Error& error, const Upload& upload, const std::string& command) {
  const bool passing = error.code() == Code::unavailable || error.code() == Code::exhausted ||
                       error.code() == Code::deadline || error.code() == Code::cancelled;
  if (!passing || upload.id().empty()) throw error;
  throw Error(error.code(), fmt::format("{}; to go on: {} --resume {}", error.what(), command, upload.id()));
}

// A word as a shell reads it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@:=+,%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word)
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  return out + "'";
}

// A command line that says the same as options that were given; those that were not are left out.
class CommandLine {
 public:
  explicit CommandLine(std::string begin) : text_(std::move(begin)) {}
  CommandLine& word(const std::string& word) {
    text_ += " " + quoted(word);
    return *this;
  }
  CommandLine& option(std::string_view name, const std::string& value) {
    if (!value.empty()) text_ += fmt::format(" {} {}", name, quoted(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

CommandLine line_of(Session& session, std::string_view command, const IngestOptions& options) {
  CommandLine line("falaj");
  line.option("--context", session.context).option("--tenant", session.tenant).option("--project", session.project);
  return line.word("dataset").word(std::string(command)).word(options.name);
}

void ingest(Session& session, const IngestOptions& options) {
  auto inputs = inputs_of(options.files, options.image_size);
  if (!options.start_at.empty()) {
    const auto first =
        std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.path == options.start_at; });
    if (first == inputs.end())
      throw Error(Code::not_found, fmt::format("--start-at: {} is none of the files", options.start_at));
    inputs.erase(inputs.begin(), first);
  } else if (!options.resume.empty() && inputs.size() != 1) {
    throw Error(Code::invalid, "--resume: of which file? --start-at says it");
  }
  json::array versions;
  auto mode = options.mode;
  auto resume = options.resume;
  for (const auto& input : inputs) {
    Upload upload(session, options.name, input, options.format);
    try {
      upload.send(std::exchange(resume, ""));
      versions.push_back(upload.finish(mode));
    } catch (const Error& e) {
      auto again = line_of(session, "ingest", options);
      for (const auto& file : options.files) again.word(file);
      again.option("--mode", mode).option("--format", options.format).option("--image-size", options.image_size);
      if (inputs.size() > 1 || !options.start_at.empty()) again.option("--start-at", input.path);
      fail(e, upload, again.text());
    }
    mode = "append";  // the first file takes the place of what was there; the others belong with it
    if (session.output().for_people()) print_version(session, versions.back());
  }
  if (!session.output().for_people()) session.output().value(versions.size() == 1 ? versions[0] : versions);
}

std::string only_time(const json::value& columns) {
  std::string out;
  for (const auto& column : columns.as_array()) {
    const std::string_view type = column.at("type").as_string();
    if (type != "timestamp" && type != "date") continue;
    if (!out.empty()) return "";
    out = column.at("name").as_string();
  }
  return out;
}

json::object resource_of(Session& session, const IngestOptions& options, json::value columns) {
  json::object spec{{"columns", std::move(columns)}};
  if (!options.key.empty()) spec["key"] = json::value_from(options.key);
  if (!options.time.empty()) spec["time"] = options.time;
  if (!options.partition.empty()) spec["partition"] = options.partition;
  if (!options.zone.empty()) spec["zone"] = options.zone;
  const auto project = session.project_scope();
  const auto scope = split(project, '/');  // "", "t", TENANT, "p", PROJECT
  return {{"apiVersion", "falaj/v1"},
          {"kind", "Dataset"},
          {"metadata", {{"tenant", scope[2]}, {"project", scope[4]}, {"name", options.name}}},
          {"spec", spec}};
}

// What declares the dataset, and its first version.
json::value create_from(Session& session, const IngestOptions& options) {
  const auto inputs = inputs_of({options.from}, options.image_size);
  if (inputs.size() != 1) throw Error(Code::invalid, "--from: one file; 'falaj dataset ingest' takes the others after");
  Upload upload(session, options.name, inputs[0], options.format);
  auto create = line_of(session, "create", options);
  create.option("--from", options.from).option("--key", fmt::format("{}", fmt::join(options.key, ",")));
  create.option("--time", options.time).option("--partition", options.partition).option("--zone", options.zone);
  create.option("--format", options.format).option("--image-size", options.image_size);
  try {
    upload.send(options.resume);
    const auto columns = upload.columns();
    auto wanted = options;
    if (options.time_of_columns && options.time.empty()) wanted.time = only_time(columns);
    const auto resource = resource_of(session, wanted, columns);
    session.api().post("/v1/apply",
                       {{"sources", {{{"file", options.from}, {"text", to_yaml(resource)}}}}, {"dry_run", false}});
  } catch (const Error& e) {
    fail(e, upload, create.text());
  }
  auto ingest = line_of(session, "ingest", options);  // the dataset is there by now: it is filled as any other
  ingest.word(options.from).option("--format", options.format).option("--image-size", options.image_size);
  try {
    return upload.finish("append");
  } catch (const Error& e) {
    fail(e, upload, ingest.text());
  }
}

bool is_there(Session& session, const std::string& name) {
  try {
    session.api().get(dataset_path(name), {{"scope", session.project_scope()}});
    return true;
  } catch (const Error& e) {
    if (e.code() == Code::not_found) return false;
    throw;
  }
}

void create(Session& session, const IngestOptions& options) {
  if (is_there(session, options.name))
    throw Error(Code::exists,
                fmt::format("dataset '{0}' is there already: 'falaj dataset ingest {0}' adds rows", options.name));
  const auto version = create_from(session, options);
  session.output().for_people() ? print_version(session, version) : session.output().value(version);
}

}  // namespace

json::value replace_rows(Session& session, const RowsFile& file) {
  IngestOptions options;
  options.name = file.dataset;
  options.from = file.path;
  options.time = file.time;
  options.time_of_columns = true;
  if (!is_there(session, file.dataset)) return create_from(session, options);
  const auto inputs = inputs_of({file.path}, "");
  if (inputs.size() != 1) throw Error(Code::invalid, fmt::format("{}: one file is expected", file.path));
  Upload upload(session, file.dataset, inputs[0], "");
  upload.send("");
  return upload.finish("overwrite");
}

void add_ingest_commands(CLI::App& dataset, Session& session) {
  const auto options = std::make_shared<IngestOptions>();
  const auto common = [&](CLI::App& command) {
    command.add_option("--format", options->format, "csv, jsonl or parquet (default: by the name, else by the bytes)")
        ->check(CLI::IsMember({"csv", "jsonl", "parquet"}));
    command.add_option("--image-size", options->image_size,
                       "HEIGHTxWIDTH in pixels to which PNG and JPEG files are brought, such as 32x48");
    command.add_option("--resume", options->resume, "Go on with an upload of the same file that broke off");
  };
  auto* make =
      dataset.add_subcommand("create", "Declare a dataset with the columns that a file has, and take its rows");
  make->add_option("dataset", options->name, "NAME of the new dataset")->required();
  make->add_option(
          "--from", options->from,
          "CSV, JSON lines (both also as gzip) or Parquet; a directory of images as IDX, or of PNG and JPEG files "
          "as [PART/]LABEL/FILE; - for standard input")
      ->required();
  make->add_option("--key", options->key, "Columns that together name a row: two rows with the same are refused")
      ->delimiter(',');
  make->add_option("--time", options->time, "The column that says when a row happened");
  make->add_option("--partition", options->partition, "Cut files by this much time")
      ->check(CLI::IsMember({"none", "day", "month", "year"}));
  make->add_option("--zone", options->zone, "Residency zone of its files (default: the project's)");
  common(*make);
  make->callback([&session, options] { create(session, *options); });

  auto* in = dataset.add_subcommand("ingest", "Bring rows in: each file becomes a version, all of it or nothing");
  in->add_option("dataset", options->name, "NAME")->required();
  in->add_option("files", options->files, "Files, directories (their files in order of name), or - for standard input")
      ->required();
  in->add_option("--start-at", options->start_at, "Leave out the files before this one: they came in already");
  in->add_option("--mode", options->mode, "append to the newest version, or overwrite: begin anew")
      ->capture_default_str()
      ->check(CLI::IsMember({"append", "overwrite"}));
  common(*in);
  in->callback([&session, options] { ingest(session, *options); });
}

}  // namespace falaj::cli
