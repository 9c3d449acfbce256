// SPDX-License-Identifier: Apache-2.0
// blob, key

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

namespace fs = std::filesystem;
using As = Column::As;

const std::vector<Column> kBlobColumns = {{"name", "name"},     {"bytes", "bytes", As::bytes},
                                          {"zone", "zone"},     {"created", "created_us", As::time},
                                          {"by", "created_by"}, {"address", "address"}};
const std::vector<Column> kBlobRows = {{"name", "name"},
                                       {"address", "address"},
                                       {"bytes", "bytes", As::bytes},
                                       {"newly stored", "stored_bytes", As::bytes},
                                       {"content", "content"},
                                       {"zone", "zone"}};

struct BlobOptions {
  std::string file, name, zone, out, reason = "by hand";
};

// Reads a stream piece by piece; the piece is empty at its end.
Bytes next_piece(std::istream& in) {
  Bytes piece(kPieceBytes);
  in.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
  piece.resize(static_cast<std::size_t>(in.gcount()));
  return piece;
}

void put_file(Session& session, const BlobOptions& options) {
  const bool from_stdin = options.file == "-";
  std::ifstream file;
  std::optional<std::uint64_t> size;
  if (!from_stdin) {
    file.open(options.file, std::ios::binary);
    if (!file) throw Error(Code::not_found, fmt::format("cannot read {}", options.file));
    size = fs::file_size(options.file);
  }
  std::istream& in = from_stdin ? std::cin : file;
  const std::string name = !options.name.empty() ? options.name
                           : from_stdin          ? ""
                                                 : fs::path(options.file).filename().string();
  if (name.empty()) throw Error(Code::invalid, "--name is needed for standard input");
  client::Query query{{"scope", session.project_scope()}, {"name", name}};
  if (!options.zone.empty()) query.emplace_back("zone", options.zone);
  Progress progress("storing " + name, size.value_or(0), Progress::Unit::bytes, session.clock(), session.quiet);
  const auto answer = session.api().upload(
      "/v1/blobs", query,
      [&] {
        Bytes piece = next_piece(in);
        progress.add(piece.size());
        return piece;
      },
      size);
  progress.finish();
  session.output().details(answer, kBlobRows);
}

// Many files as one body and one durable batch: for each file its name and its size, then its bytes.
class Pack {
 public:
  Pack(const std::string& directory, const std::string& prefix) {
    for (const auto& entry : fs::recursive_directory_iterator(directory))
      if (entry.is_regular_file()) {
        const std::string name = prefix + fs::relative(entry.path(), directory).generic_string();
        files_.push_back({entry.path().string(), name, entry.file_size()});
        total_ += files_.back().bytes;
      }
    std::sort(files_.begin(), files_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  std::size_t files() const { return files_.size(); }
  std::uint64_t total_bytes() const { return total_; }

  Bytes next() {
    Bytes out;
    while (out.size() < kPieceBytes && (open_ || at_ < files_.size())) {
      if (!open_) {
        const auto& f = files_[at_];
        in_ = std::ifstream(f.path, std::ios::binary);
        if (!in_) throw Error(Code::unavailable, fmt::format("cannot read {}", f.path));
        ByteWriter head;
        head.text(f.name);
        head.u64(f.bytes);
        out.insert(out.end(), head.bytes().begin(), head.bytes().end());
        left_ = f.bytes;
        open_ = true;
      }
      Bytes piece(std::min<std::uint64_t>(left_, kPieceBytes));
      in_.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
      if (static_cast<std::size_t>(in_.gcount()) != piece.size())
        throw Error(Code::conflict, fmt::format("file became shorter while it was read: {}", files_[at_].path));
      out.insert(out.end(), piece.begin(), piece.end());
      left_ -= piece.size();
      if (left_ == 0) {
        open_ = false;
        ++at_;
      }
    }
    return out;
  }

 private:
  struct File {
    std::string path, name;
    std::uint64_t bytes = 0;
  };
  std::vector<File> files_;
  std::uint64_t total_ = 0, left_ = 0;
  std::size_t at_ = 0;
  bool open_ = false;
  std::ifstream in_;
};

void put_directory(Session& session, const BlobOptions& options) {
  std::string prefix = options.name;
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  Pack pack(options.file, prefix);
  client::Query query{{"scope", session.project_scope()}};
  if (!options.zone.empty()) query.emplace_back("zone", options.zone);
  Progress progress(fmt::format("storing {} files", pack.files()), pack.total_bytes(), Progress::Unit::bytes,
                    session.clock(), session.quiet);
  const auto answer = session.api().upload(
      "/v1/blobs/batch", query,
      [&] {
        Bytes piece = pack.next();
        progress.add(piece.size());
        return piece;
      },
      std::nullopt);
  progress.finish();
  session.output().details(
      answer, {{"files", "files"}, {"bytes", "bytes", As::bytes}, {"newly stored", "stored_bytes", As::bytes}});
}

void get_blob(Session& session, const BlobOptions& options) {
  const bool to_stdout = options.out.empty() || options.out == "-";
  std::optional<ResultFile> file;
  if (!to_stdout) file.emplace(options.out);
  std::optional<Progress> progress;
  session.api().download(
      net::Method::get, "/v1/blobs/content", {{"scope", session.project_scope()}, {"name", options.file}}, nullptr,
      [&](auto size) {
        progress.emplace("fetching " + options.file, size.value_or(0), Progress::Unit::bytes, session.clock(),
                         session.quiet || to_stdout);
      },
      [&](BytesView piece) {
        if (file)
          file->write(piece);
        else
          std::cout.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
        progress->add(piece.size());
      });
  if (file) file->keep();
  std::cout.flush();
  if (!std::cout) throw Error(Code::unavailable, "writing to standard output failed");
}

json::array list_blobs(Session& session, const std::string& prefix) {
  json::array items;
  client::Query query{{"scope", session.project_scope()}};
  if (!prefix.empty()) query.emplace_back("prefix", prefix);
  for (;;) {
    const auto page = session.api().get("/v1/blobs", query);
    for (const auto& item : page.at("items").as_array()) items.push_back(item);
    const auto* next = page.as_object().if_contains("next");
    if (!next || next->is_null()) return items;
    std::erase_if(query, [](const auto& q) { return q.first == "cursor"; });
    query.emplace_back("cursor", std::string(next->as_string()));
  }
}

void add_storing(CLI::App& blob, Session& session) {
  auto options = std::make_shared<BlobOptions>();
  auto* put = blob.add_subcommand("put", "Store a file under a name, or all files of a directory in one durable batch");
  put->add_option("file", options->file, "A file, a directory, or - for standard input")->required();
  put->add_option("--name", options->name, "Name of the file, or prefix for a directory (default: the file's own)");
  put->add_option("--zone", options->zone, "Residency zone (default: the project's)");
  put->callback([&session, options] {
    fs::is_directory(options->file) ? put_directory(session, *options) : put_file(session, *options);
  });

  auto* get =
      blob.add_subcommand("get", "Write the bytes of a name to a file or standard output; verified as they are read");
  get->add_option("name", options->file, "Its name")->required();
  get->add_option("-O,--out", options->out, "Where to (default: standard output)");
  get->callback([&session, options] { get_blob(session, *options); });

  auto* ls = blob.add_subcommand("ls", "List names");
  ls->add_option("prefix", options->name, "Only names that begin so");
  ls->callback([&session, options] { session.output().table(list_blobs(session, options->name), kBlobColumns); });

  auto* show = blob.add_subcommand("show", "What is known of a name");
  show->add_option("name", options->file, "Its name")->required();
  show->callback([&session, options] {
    session.output().details(
        session.api().get("/v1/blobs/info", {{"scope", session.project_scope()}, {"name", options->file}}),
        {{"name", "name"},
         {"address", "address"},
         {"bytes", "bytes", As::bytes},
         {"content", "content"},
         {"zone", "zone"},
         {"pins", "pins"},
         {"created", "created_us", As::time},
         {"by", "created_by"}});
  });

  auto* rm = blob.add_subcommand("rm", "Forget a name; its bytes go at the next gc unless something else holds them");
  rm->add_option("name", options->file, "Its name")->required();
  rm->callback([&session, options] {
    session.api().del("/v1/blobs", {{"scope", session.project_scope()}, {"name", options->file}});
    session.output().line("removed " + options->file);
  });
}

void add_keeping(CLI::App& blob, Session& session) {
  auto options = std::make_shared<BlobOptions>();
  for (const std::string verb : {"pin", "unpin"}) {
    auto* command = blob.add_subcommand(
        verb, verb == "pin" ? "Keep the bytes of a name even when the name is removed" : "Undo a pin");
    command->add_option("name", options->file, "Its name, or its address once the name is gone")->required();
    command->add_option("--reason", options->reason, "Why it is kept; pins of different reasons are independent")
        ->capture_default_str();
    command->callback([&session, options, verb] {
      session.api().post("/v1/blobs/" + verb, {{"name", options->file}, {"reason", options->reason}},
                         {{"scope", session.project_scope()}});
      session.output().line(verb + "ned " + options->file);
    });
  }
  auto* gc =
      blob.add_subcommand("gc", "Delete bytes that nothing names or pins, once older than the setting blobs.grace");
  gc->callback([&session] {
    session.output().details(
        session.api().post("/v1/blobs/gc", json::object{}),
        {{"objects deleted", "objects"}, {"bytes reclaimed", "bytes", As::bytes}, {"objects kept", "kept"}});
  });
  blob.add_subcommand("scrub", "Read everything stored and verify it")->callback([&session] {
    const auto report = session.api().post("/v1/blobs/scrub", json::object{});
    session.output().details(report,
                             {{"objects read", "objects"}, {"bytes read", "bytes", As::bytes}, {"damaged", "damaged"}});
    if (!report.at("damaged").as_array().empty())
      throw Error(Code::corrupt, "damaged objects were found; restore them from a backup");
  });
}

void add_keys(CLI::App& app, Session& session) {
  auto* key = app.add_subcommand("key", "Encryption keys: root, zones, tenants");
  key->require_subcommand(1);
  key->add_subcommand("ls", "List keys and their versions (never the keys)")->callback([&session] {
    session.output().table(
        session.api().get("/v1/keys").at("items").as_array(),
        {{"level", "level"}, {"zone", "zone"}, {"tenant", "tenant"}, {"version", "version"}, {"state", "state"}});
  });
  auto level = std::make_shared<std::string>();
  auto zone = std::make_shared<std::string>();
  auto* rotate =
      key->add_subcommand("rotate", "Make a new key at a level; what it protects stays readable and is not rewritten");
  rotate->add_option("level", *level, "root, zone or tenant")
      ->required()
      ->check(CLI::IsMember({"root", "zone", "tenant"}));
  rotate->add_option("--zone", *zone, "Which zone");
  rotate->callback([&session, level, zone] {
    json::object body{{"level", *level}};
    if (!zone->empty()) body["zone"] = *zone;
    session.api();  // reads the context, which may name the tenant
    if (*level != "root" && zone->empty()) throw Error(Code::invalid, "which zone? give --zone");
    if (*level == "tenant" && session.tenant.empty()) throw Error(Code::invalid, "which tenant? give --tenant");
    if (*level == "tenant") body["tenant"] = session.tenant;
    session.output().details(session.api().post("/v1/keys/rotate", body),
                             {{"rotated", "level"}, {"version", "version"}, {"keys rewrapped", "rewrapped"}});
  });
}

}  // namespace

void add_blob_commands(CLI::App& app, Session& session) {
  auto* blob = app.add_subcommand("blob", "Bytes by name: content-addressed, encrypted, verified");
  blob->require_subcommand(1);
  add_storing(*blob, session);
  add_keeping(*blob, session);
  add_keys(app, session);
}

}  // namespace falaj::cli
