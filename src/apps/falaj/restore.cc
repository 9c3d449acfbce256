// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/restore.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "apps/falaj/control_plane.h"
#include "cli/progress.h"
#include "governance/backup/backup.h"

namespace falaj::app {
namespace {

namespace fs = std::filesystem;

struct RestoreOptions {
  std::string file, passphrase_file;
  bool admin_token = false;
};

// The parts of a platform that a restore needs before there is one.
struct Restoring {
  sys::RealClock clock;
  sys::RealRandom random;
  Metrics metrics;
  std::unique_ptr<sql::Database> database;
  std::unique_ptr<iam::Directory> directory;
  std::unique_ptr<vault::KeyStore> keys;
  std::unique_ptr<vault::Vault> vault;
};

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) throw Error(Code::not_found, fmt::format("no passphrase in {}", path));
  return line;
}

// For whoever lost every credential together with the machine. No more than they have: the backup holds the root keys.
void make_admin_token(Restoring& parts, const vault::RootKeys& roots, sys::Files& files) {
  const crypto::Signer signer(roots.platform_key(vault::kAuditSignatures));
  audit::AuditLog audit(*parts.database, parts.clock, signer);
  parts.database->set_ledger(audit);
  const auto admin = iam::Principal::parse("user/admin");
  parts.database->write({"system/restore", "token.create", "/user/admin", ""}, [&](sql::Writer& writer) {
    const auto issued = parts.directory->issue_token(writer, {admin, "restore", {}, iam::kTokenLifeMaxUs});
    files.write_all(kAdminTokenFile, as_bytes(issued.text + "\n"));
  });
  parts.database->stop();  // while there is a ledger
}

backup::Totals load(const RestoreOptions& options, const Settings& settings,
                    const std::vector<std::string>& environment, cli::Progress& progress) {
  std::ifstream in(options.file, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", options.file));
  // All of the file first: a database server keeps what it was given, and an altered backup should give it nothing.
  const auto secret = first_line(options.passphrase_file);
  const backup::ArchiveReader::Source source = [&](std::span<std::byte> out) -> std::size_t {
    in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    progress.add(static_cast<std::uint64_t>(in.gcount()));
    return static_cast<std::size_t>(in.gcount());
  };
  backup::inspect(secret, source);
  in.clear();
  in.seekg(0);
  const auto files = sys::open_files(settings.data);
  const auto passphrase = root_passphrase(settings, environment);
  Restoring parts;
  parts.database = open_database(settings, environment, parts.metrics);
  std::optional<vault::RootKeys> roots;
  const auto save = [&](const vault::RootKeys& keys) { keys.save(*files, kRootKeyFile, passphrase); };
  const backup::Target target{
      [&](const vault::RootKeys& restored) {
        save(restored);
        roots.emplace(vault::RootKeys::decode(restored.encode()));
      },
      *parts.database,
      [&]() -> vault::Vault& {
        parts.directory = std::make_unique<iam::Directory>(*parts.database, parts.clock, parts.random,
                                                           roots->platform_key(vault::kWorkloadTokens));
        parts.keys = std::make_unique<vault::KeyStore>(*parts.database, vault::RootKeys::decode(roots->encode()), save);
        parts.vault = std::make_unique<vault::Vault>(*parts.database, *parts.directory, *parts.keys,
                                                     backend_maker(settings, environment, parts.clock, parts.random),
                                                     parts.clock, parts.metrics);
        return *parts.vault;
      }};
  const auto totals = backup::restore(secret, source, target, [](std::string_view, std::uint64_t) {});
  if (options.admin_token) make_admin_token(parts, *roots, *files);
  parts.database->stop();
  return totals;
}

void restore(cli::Session& session, const RestoreOptions& options, const Settings& wanted,
             const std::vector<std::string>& environment) {
  std::error_code ignored;
  if (fs::exists(wanted.data, ignored) && !fs::is_empty(wanted.data, ignored))
    throw Error(Code::exists, fmt::format("data directory is not empty: {}", wanted.data));
  // Restored beside it and renamed when all of it was verified: a restore that fails leaves nothing that looks like
  // one.
  Settings settings = wanted;
  settings.data = wanted.data + ".restoring";
  fs::remove_all(settings.data);
  backup::Totals totals;
  try {
    cli::Progress progress("restoring", fs::exists(options.file) ? 2 * fs::file_size(options.file) : 0,
                           cli::Progress::Unit::bytes, session.clock(), session.quiet);
    totals = load(options, settings, environment, progress);
  } catch (const std::exception&) {
    fs::remove_all(settings.data, ignored);
    throw;
  }
  fs::remove(wanted.data, ignored);  // an empty directory
  fs::rename(settings.data, wanted.data);
  session.output().details(json::object{{"rows", totals.rows},
                                        {"objects", totals.objects},
                                        {"bytes", totals.object_bytes},
                                        {"audit", totals.audit_records}},
                           {{"rows", "rows"},
                            {"objects", "objects"},
                            {"bytes", "bytes", cli::Column::As::bytes},
                            {"audit records verified", "audit"}});
}

}  // namespace

void add_restore_command(CLI::App& app, cli::Session& session,
                         const std::function<std::pair<Settings, std::vector<std::string>>()>& load_settings,
                         const std::function<void(CLI::App&)>& add_settings_options) {
  auto options = std::make_shared<RestoreOptions>();
  auto* command = app.add_subcommand("restore", "Make a new platform from a backup, verifying every byte of it");
  command->add_option("file", options->file, "The backup")->required();
  command
      ->add_option("--passphrase-file", options->passphrase_file,
                   "A file whose first line is the passphrase of the backup")
      ->required();
  command->add_flag("--admin-token", options->admin_token,
                    "Also make a new token of the administrator, in the data directory; for when all were lost");
  add_settings_options(*command);
  command->callback([&session, options, load_settings] {
    const auto [settings, environment] = load_settings();
    restore(session, *options, settings, environment);
  });
}

}  // namespace falaj::app
