// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "foundation/base/json.h"
#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "governance/vault/testing.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/export_manifest.h"
#include "lifecycle/track/export_run.h"
#include "lifecycle/track/export_tar.h"
#include "lifecycle/track/import.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::track {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Files = std::vector<std::pair<std::string, std::string>>;

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return fmt::format("{}: {}", name(e.code()), e.what());
  }
  return "";
}

Files files_of(const std::string& tar) {
  Files out;
  TarReader reader(blob::source_of(as_bytes(tar)));
  while (const auto member = reader.next()) out.emplace_back(member->name, reader.read_all(*member, 1 << 30));
  return out;
}

std::string tar_of(const Files& files) {
  std::string out;
  for (const auto& [name, text] : files) {
    out += as_text(tar_header({name, text.size()}, 0));
    out += text + std::string(tar_padding(text.size()), '\0');
  }
  return out + std::string(kTarEndBytes, '\0');
}

crypto::Signer signer_of(int seed) {
  std::array<std::byte, crypto::Key::kBytes> key{};
  key.fill(std::byte(seed));
  return crypto::Signer(crypto::Key::from(key));
}

// ---- the parts

TEST(Tar, KeepsNamesAndSizesOfAnyLength) {
  const std::vector<TarMember> members = {{"a", 0},
                                          {std::string(100, 'x'), 511},
                                          {std::string(101, 'x'), 512},
                                          {"runs/" + std::string(900, 'y'), 513},
                                          {"مطار/delay.csv", 3}};
  std::string tar;
  std::uint64_t bytes = kTarEndBytes;
  for (const auto& member : members) {
    tar += as_text(tar_header(member, 1'700'000'000));
    tar += std::string(member.bytes, 'b') + std::string(tar_padding(member.bytes), '\0');
    bytes += tar_bytes(member);
  }
  tar += std::string(kTarEndBytes, '\0');
  EXPECT_EQ(tar.size(), bytes);
  TarReader reader(blob::source_of(as_bytes(tar)));
  for (const auto& member : members) {
    EXPECT_EQ(reader.next(), member);
    EXPECT_EQ(reader.read_all(member, 1000), std::string(member.bytes, 'b'));
  }
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(Tar, CarriesSizesPastEightGibibytes) {
  const TarMember huge{"x", std::uint64_t{1} << 40};
  const auto header = tar_header(huge, 0);
  TarReader reader(blob::source_of(header));
  EXPECT_EQ(reader.next(), huge);
}

TEST(Tar, RefusesWhatIsNoPlainFile) {
  for (const char type : {'1', '2', '3', '4', '5', '6', 'g', 'L'}) {
    auto header = tar_header({"x", 0}, 0);
    header[156] = std::byte(type);  // and its checksum with it
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? 32 : std::to_integer<std::uint64_t>(header[i]);
    const auto text = fmt::format("{:06o}", sum);
    std::memcpy(header.data() + 148, text.data(), 6);
    header.resize(header.size() + kTarEndBytes);
    TarReader reader(blob::source_of(header));
    EXPECT_THAT(message_of([&] { reader.next(); }), HasSubstr("is not a plain file")) << type;
  }
}

TEST(Tar, RefusesEveryCutAndEveryChangedHeader) {
  const auto tar = tar_of({{"a", "one"}, {std::string(150, 'n'), "two"}});
  const auto read = [](const std::string& text) { files_of(text); };
  read(tar);
  for (std::size_t cut = 0; cut < tar.size() - 1; cut += 13) {
    SCOPED_TRACE(cut);
    EXPECT_ERROR(read(tar.substr(0, cut)), Code::invalid);
  }
  for (const std::size_t at : {0U, 130U, 150U, 160U, 1030U}) {
    auto bad = tar;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    SCOPED_TRACE(at);
    EXPECT_ERROR(read(bad), Code::invalid);
  }
  EXPECT_ERROR(read(tar + "x"), Code::invalid);
  EXPECT_ERROR(read(tar + std::string(100'000, '\0')), Code::invalid);
}

TEST(PointsCsv, KeepsTheBitsOfEveryValue) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0,
                                -0.0,
                                0.1,
                                -1e308,
                                5e-324,
                                1.0 / 3,
                                kInf,
                                -kInf,
                                std::nan(""),
                                -std::nan(""),
                                std::bit_cast<double>(std::uint64_t{0x7ff0000000000001})};
  std::mt19937_64 random(20'261);
  for (int i = 0; i < 10'000; ++i) values.push_back(std::bit_cast<double>(random()));
  std::string csv(kPointsHeader);
  for (std::size_t i = 0; i < values.size(); ++i)
    append_csv(csv, 0, {static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) - 5, values[i]});
  PointsReader reader(blob::source_of(as_bytes(csv)), 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto line = reader.next();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->point.step, static_cast<std::int64_t>(i) - 5);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(line->point.value), std::bit_cast<std::uint64_t>(values[i])) << i;
  }
  EXPECT_FALSE(reader.next());
}

TEST(PointsCsv, RefusesWhatWasNotWritten) {
  const auto read = [](const std::string& text) {
    PointsReader reader(blob::source_of(as_bytes(text)), 2);
    while (reader.next()) {
    }
  };
  const std::string titles(kPointsHeader);
  read(titles + "0,1,2,3\n1,1,2,3\n");
  for (const auto* bad : {"0,1,2\n", "0,1,2,3", "0,1,2,x\n", "2,1,2,3\n", "0,-1,2,3\n", "0,1,2,3\n0,1,2,3\n",
                          "1,1,2,3\n0,1,2,3\n", "0,1,2,nan:7ff\n", "0,1,2,nan:0000000000000000\n", "0,1,2,infinity\n",
                          "0,1,2,1e999\n", "0,1,2,3,4\n", "0, 1,2,3\n", "0,1,2,0x10\n", "\n"}) {
    SCOPED_TRACE(bad);
    EXPECT_ERROR(read(titles + bad), Code::invalid);
  }
  EXPECT_ERROR(read(""), Code::invalid);
  EXPECT_ERROR(read("a,b,c,d\n"), Code::invalid);
  EXPECT_ERROR(read(titles + "0,1,2," + std::string(1000, '1')), Code::invalid);
}

// ---- the whole, on both engines

class ExportOf : public testing::TestWithParam<std::string> {
 protected:
  ExportOf() : base(GetParam()) {
    for (const auto& module : {Track::migrations(), LoggedModels::migrations()}) base.database->migrate(module);
    models = std::make_unique<LoggedModels>(*base.database, base.clock, base.random, *base.metrics);
    track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  }

  // A run with something of everything.
  std::string make_run(std::int64_t experiment, const std::string& name, int seed) {
    base.clock.advance(std::chrono::seconds(1));
    const auto id = track->create_run(kFlights, {experiment, name, "ada", {}, {{"team", "ops"}}}, act).info.run_id;
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    Batch batch;
    for (int i = 0; i < 300; ++i)
      batch.metrics.push_back({i % 3 == 0 ? "loss" : "val/acc",
                               {1000 + i, i, std::bit_cast<double>(random())},
                               i % 2 == 0 ? "" : "m-1",
                               "",
                               ""});
    batch.metrics.push_back({"loss", {5000, 400, std::nan("")}, "", "", ""});
    batch.metrics.push_back({"loss", {5001, 401, -std::numeric_limits<double>::infinity()}, "", "", ""});
    batch.params = {{"depth", std::to_string(seed)}, {"name", "قطار, \"q\"\nnext"}};
    track->log(kFlights, id, batch, act);
    track->log_inputs(kFlights, id,
                      {{{"planes", "d1", "local", "s3://x", "{}", ""}, {{"mlflow.data.context", "training"}}}}, {"m-0"},
                      act);
    track->log_outputs(kFlights, id, {{"m-1", 7}}, act);
    base.put(kFlights, run_artifact(id, "model/weights.bin"), std::string(300'000, static_cast<char>('a' + seed)));
    base.put(kFlights, run_artifact(id, "empty"), "");
    base.put(kFlights, run_artifact(id, "deep/" + std::string(200, 'd') + "/ملف"), "long");
    track->update_run(kFlights, id, {RunStatus::finished, 9999, {}}, act);
    return id;
  }

  std::string exported(const Where& where, const std::vector<std::string>& ids, int seed = 1) {
    std::string out;
    std::uint64_t told = 0;
    export_runs(
        *base.database, *base.vault, {where, ids, "http://here", "user/ada", 123'000}, signer_of(seed),
        [&](std::uint64_t bytes) { told = bytes; }, [&](BytesView piece) { out += as_text(piece); });
    EXPECT_EQ(out.size(), told);
    return out;
  }
  Imported import(const Where& where, const std::string& file, int trusted = 1, const std::string& experiment = "") {
    return import_runs(*track, *base.vault, {where, {signer_of(trusted).public_key()}, experiment},
                       blob::source_of(as_bytes(file)), act);
  }
  // The same files, signed anew after `change`.
  static std::string altered(const std::string& file, const std::function<void(Files&, json::object&)>& change) {
    auto files = files_of(file);
    auto manifest = parse_json(trimmed(files[0].second)).as_object();
    change(files, manifest);
    files[0].second = canonical(manifest) + "\n";
    files[1].second = sign_export(files[0].second, signer_of(1));
    return tar_of(files);
  }
  static std::string_view trimmed(std::string_view text) { return text.substr(0, text.find_last_not_of('\n') + 1); }
  static Files content(const std::string& file) {
    auto files = files_of(file);
    files.erase(files.begin(), files.begin() + 2);
    return files;
  }
  std::size_t records() { return base.log->log({}, std::nullopt, 10'000).records.size(); }
  std::size_t runs_in(const Where& where) {
    SearchRuns search;
    for (const auto& e : track->search_experiments(where, {}).items) search.experiments.push_back(e.number);
    return track->search_runs(where, search).items.size();
  }
  bool untouched(const Where& where) {
    return runs_in(where) == 0 && base.vault->list(where, "", "", 10).empty() &&
           track->search_experiments(where, {}).items.size() == 1;
  }

  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo,
                            kRockets = vault::VaultFixture::kRockets;
  const sql::Act act = vault::VaultFixture::act("run.import");
  vault::VaultFixture base;
  std::unique_ptr<Track> track;
  std::unique_ptr<LoggedModels> models;
};

TEST_P(ExportOf, CarriesEverythingToTheBit) {
  const auto other = track->create_experiment(kFlights, "delays", {{"owner", "ops"}}, act);
  const std::vector<std::string> ids = {make_run(0, "first", 1), make_run(other, "second", 2)};
  const auto file = exported(kFlights, ids);
  const auto imported = import(kRockets, file);
  EXPECT_EQ(imported.made, 2);
  EXPECT_EQ(imported.files, 6);
  EXPECT_EQ(imported.points, 604);
  EXPECT_THAT(imported.experiments, ElementsAre("delays"));
  EXPECT_EQ(content(exported(kRockets, ids)), content(file));
  EXPECT_THAT(track->experiment_by_name(kRockets, "delays").tags, ElementsAre(KeyValue{"owner", "ops"}));
  const auto run = track->run(kRockets, ids[1]);
  EXPECT_EQ(run.info.status, RunStatus::finished);
  EXPECT_EQ(run.info.end_ms, 9999);
  EXPECT_EQ(run.info.name, "second");
  EXPECT_EQ(base.read(kRockets, run_artifact(ids[1], "model/weights.bin")), std::string(300'000, 'c'));
}

TEST_P(ExportOf, CarriesTheModelsThatItsRunsMade) {
  const auto id = make_run(0, "first", 1), other = make_run(0, "other", 2);
  const auto made = models->create(kFlights, {0, "trees", "forest", id, {{"depth", "3"}}, {{"team", "ops"}}}, act);
  const auto gone = models->create(kFlights, {0, "nets", "", id, {}, {}}, act);
  const auto elsewhere = models->create(kFlights, {0, "not here", "", other, {}, {}}, act);
  const auto put_out = models->create(kFlights, {0, "of nobody", "", "", {}, {}}, act);
  models->set_status(kFlights, made.model_id, ModelStatus::ready, act);
  models->remove(kFlights, gone.model_id, act);
  track->log_outputs(kFlights, id, {{put_out.model_id, 3}, {elsewhere.model_id, 4}}, act);
  track->log(kFlights, id, {{{"acc", {1, 1, 0.5}, made.model_id, "planes", "d1"}}, {}, {}}, act);
  base.put(kFlights, model_artifact(made.model_id, "MLmodel"), "flavors");
  base.put(kFlights, model_artifact(put_out.model_id, "deep/weights"), std::string(100'000, 'w'));

  const auto file = exported(kFlights, {id});
  EXPECT_EQ(import(kRockets, file).files, 3 + 2);
  EXPECT_EQ(content(exported(kRockets, {id})), content(file));
  const auto there = models->get(kRockets, made.model_id);
  EXPECT_EQ(there.name, "trees");
  EXPECT_EQ(there.type, "forest");
  EXPECT_EQ(there.source_run_id, id);
  EXPECT_EQ(there.status, ModelStatus::ready);
  EXPECT_EQ(there.created_ms, made.created_ms);
  EXPECT_THAT(there.params, ElementsAre(KeyValue{"depth", "3"}));
  EXPECT_THAT(there.tags, ElementsAre(KeyValue{"team", "ops"}));
  ASSERT_EQ(there.metrics.size(), 1U) << "of the imported run alone, not of the one it comes from";
  EXPECT_EQ(there.metrics[0].metric.point.value, 0.5);
  EXPECT_EQ(models->get(kFlights, made.model_id).metrics.size(), 1U);
  EXPECT_EQ(models->get(kRockets, gone.model_id, true).stage, Stage::deleted);
  EXPECT_EQ(models->get(kRockets, put_out.model_id).source_run_id, "");
  EXPECT_ERROR(models->get(kRockets, elsewhere.model_id), Code::not_found);
  EXPECT_EQ(base.read(kRockets, model_artifact(made.model_id, "MLmodel")), "flavors");

  const auto before = records();
  const auto again = import(kRockets, file);
  EXPECT_EQ(again.made + again.changed + again.points + again.files, 0);
  EXPECT_EQ(import(kFlights, file).changed, 0);
  EXPECT_EQ(records(), before);
}

TEST_P(ExportOf, ModelsAreMergedAsRunsAre) {
  const auto id = make_run(0, "first", 1);
  const auto model = models->create(kFlights, {0, "trees", "", id, {{"depth", "3"}}, {}}, act).model_id;
  import(kRockets, exported(kFlights, {id}));
  base.clock.advance(std::chrono::seconds(5));
  models->log_params(kFlights, model, {{"late", "1"}}, act);
  models->set_tags(kFlights, model, {{"team", "ops"}}, act);
  models->set_status(kFlights, model, ModelStatus::upload_failed, act);
  models->set_tags(kRockets, model, {{"team", "mine"}, {"note", "stays"}}, act);
  const auto merged = import(kRockets, exported(kFlights, {id}));
  EXPECT_EQ(merged.changed, 1);
  const auto there = models->get(kRockets, model);
  EXPECT_THAT(there.params, ElementsAre(KeyValue{"depth", "3"}, KeyValue{"late", "1"}));
  EXPECT_THAT(there.tags, ElementsAre(KeyValue{"note", "stays"}, KeyValue{"team", "ops"}));
  EXPECT_EQ(there.status, ModelStatus::upload_failed);

  models->remove(kRockets, model, act);
  import(kRockets, exported(kFlights, {id}));
  EXPECT_EQ(models->get(kRockets, model, true).stage, Stage::deleted) << "an import brings nothing back";

  models->log_params(kFlights, model, {{"width", "1"}}, act);
  const auto file = exported(kFlights, {id});
  const auto other = altered(file, [&](Files& files, json::object& manifest) {
    auto& text = files[2].second;
    text.replace(text.find("\"depth\":\"3\""), 11, "\"depth\":\"4\"");
    auto& member = manifest["members"].as_array()[0].as_object();
    member["sha256"] = crypto::sha256(text).hex();
  });
  EXPECT_THAT(message_of([&] { import(kRockets, other); }), HasSubstr("param 'depth' of logged model"));
}

TEST_P(ExportOf, FilesOfAModelThatNoRunMadeAreRefused) {
  const auto id = make_run(0, "first", 1);
  const auto model = models->create(kFlights, {0, "trees", "", id, {}, {}}, act).model_id;
  base.put(kFlights, model_artifact(model, "MLmodel"), "flavors");
  const auto bad = altered(exported(kFlights, {id}), [&](Files& files, json::object& manifest) {
    const auto name = fmt::format("models/m-{}/artifacts/MLmodel", std::string(32, '0'));
    files.back().first = name;
    manifest["members"].as_array().back().as_object()["name"] = name;
  });
  EXPECT_THAT(message_of([&] { import(kRockets, bad); }), HasSubstr("that no run of the file has"));
  EXPECT_TRUE(untouched(kRockets));
}

TEST_P(ExportOf, ImportedRunsAreFoundAndShowTheirNewestPoints) {
  const auto id = make_run(0, "first", 1);
  SearchRuns all{{0}, "", {}, View::active, 0, 10};
  EXPECT_THAT(track->search_runs(kRockets, all).items, IsEmpty());  // what a search remembers must not hide the run
  import(kRockets, exported(kFlights, {id}));
  SearchRuns search{{0}, "params.depth = '1' AND tags.team = 'ops'", {}, View::active, 0, 10};
  const auto found = track->search_runs(kRockets, search).items;
  ASSERT_EQ(found.size(), 1U);
  const auto here = track->run(kFlights, id);
  ASSERT_EQ(found[0].metrics.size(), here.metrics.size());
  for (std::size_t i = 0; i < here.metrics.size(); ++i) {
    EXPECT_EQ(found[0].metrics[i].key, here.metrics[i].key);
    EXPECT_TRUE(same(found[0].metrics[i].point, here.metrics[i].point));
  }
}

TEST_P(ExportOf, ImportingAgainChangesNothing) {
  const auto file = exported(kFlights, {make_run(0, "first", 1)});
  import(kRockets, file);
  const auto before = records();
  const auto again = import(kRockets, file);
  EXPECT_EQ(records(), before);
  EXPECT_EQ(again.runs, 1);
  EXPECT_EQ(again.made + again.changed + again.points + again.files, 0);
  EXPECT_EQ(import(kFlights, file).changed, 0) << "nor does importing it where it came from";
}

TEST_P(ExportOf, ANewerExportAddsWhatIsNew) {
  const auto id = make_run(0, "first", 1);
  import(kRockets, exported(kFlights, {id}));
  Batch more;
  more.metrics = {
      {"loss", {500, 1, 0.5}, "", "", ""}, {"loss", {9000, 900, 0.25}, "", "", ""}, {"new", {1, 1, 1}, "", "", ""}};
  more.params = {{"late", "yes"}};
  more.tags = {{"team", "research"}, {"mlflow.runName", "renamed"}};
  track->log(kFlights, id, more, act);
  base.put(kFlights, run_artifact(id, "empty"), "not any more");
  base.put(kFlights, run_artifact(id, "report"), "new");
  const auto file = exported(kFlights, {id});
  const auto merged = import(kRockets, file);
  EXPECT_EQ(merged.changed, 1);
  EXPECT_EQ(merged.points, 3);
  EXPECT_EQ(merged.files, 2);
  EXPECT_EQ(content(exported(kRockets, {id})), content(file));
  EXPECT_EQ(track->run_info(kRockets, id).name, "renamed");
}

TEST_P(ExportOf, WhatWasAddedHereStays) {
  const auto id = make_run(0, "first", 1);
  const auto file = exported(kFlights, {id});
  import(kRockets, file);
  track->log(kRockets, id, {{{"here", {1, 1, 1}, "", "", ""}}, {{"local", "1"}}, {{"team", "x"}, {"note", "mine"}}},
             act);
  track->set_run_stage(kRockets, id, Stage::deleted, act);
  import(kRockets, file);
  const auto run = track->run(kRockets, id);
  EXPECT_EQ(run.params.size(), 3U);
  EXPECT_EQ(run.info.stage, Stage::deleted) << "an import does not bring back what was deleted";
  std::map<std::string, std::string> tags;
  for (const auto& tag : run.tags) tags[tag.key] = tag.value;
  EXPECT_EQ(tags["note"], "mine");
  EXPECT_EQ(tags["team"], "ops") << "of a tag that both have, the export's value counts";
  EXPECT_FALSE(track->history(kRockets, id, "here", std::nullopt, 10).points.empty());
}

TEST_P(ExportOf, ARunThatRunsHereIsNotStartedAgainByAnOldExport) {
  const auto id = track->create_run(kFlights, {0, "r", "", {}, {}}, act).info.run_id;
  const auto early = exported(kFlights, {id});
  track->update_run(kFlights, id, {RunStatus::failed, 77, {}}, act);
  import(kRockets, early);
  EXPECT_EQ(track->run_info(kRockets, id).status, RunStatus::running);
  import(kRockets, exported(kFlights, {id}));
  EXPECT_EQ(track->run_info(kRockets, id).status, RunStatus::failed);
  EXPECT_EQ(import(kRockets, early).changed, 0);
  EXPECT_EQ(track->run_info(kRockets, id).end_ms, 77);
}

TEST_P(ExportOf, AnotherValueOfAParamIsAConflictAndNothingIsImported) {
  const auto id = make_run(0, "first", 1), other = make_run(0, "second", 2);
  import(kRockets, exported(kFlights, {id}));
  track->log(kRockets, id, {{}, {{"late", "here"}}, {}}, act);
  track->log(kFlights, id, {{}, {{"late", "there"}}, {}}, act);
  EXPECT_EQ(message_of([&] {
              import(kRockets, exported(kFlights, {other, id}));
            }),
            fmt::format("conflict: param 'late' of run {} is 'here' here and 'there' in the export", id));
  EXPECT_ERROR(track->run_info(kRockets, other), Code::not_found);
  EXPECT_ERROR(base.vault->info(kRockets, run_artifact(other, "empty")), Code::not_found);
}

TEST_P(ExportOf, TheSameIdElsewhereIsAnotherRunAndNobodyCanTell) {
  const auto id = make_run(0, "secret", 1);
  const auto file = exported(kFlights, {id});
  const auto into_cargo = import(kCargo, file), into_rockets = import(kRockets, file);
  EXPECT_EQ(into_cargo.made, 1);
  EXPECT_EQ(into_rockets.made, 1);
  track->log(kRockets, id, {{}, {}, {{"team", "rockets"}}}, act);
  track->set_run_stage(kCargo, id, Stage::deleted, act);
  EXPECT_EQ(track->run_info(kFlights, id).stage, Stage::active);
  EXPECT_EQ(content(exported(kFlights, {id})), content(file));
}

TEST_P(ExportOf, OnlyATrustedKeyImportsAndTheErrorNamesTheOther) {
  const auto file = exported(kFlights, {make_run(0, "first", 1)}, 9);
  EXPECT_EQ(message_of([&] { import(kRockets, file); }),
            "denied: the export was signed by a key that is not trusted here: if it is the key of the platform you "
            "expect it from, give it with --key: " +
                to_hex(signer_of(9).public_key()));
  EXPECT_TRUE(untouched(kRockets));
  EXPECT_EQ(import(kRockets, file, 9).made, 1);
}

TEST_P(ExportOf, AChangedByteAnywhereIsFoundBeforeAnythingIsSeen) {
  const auto file = exported(kFlights, {make_run(0, "first", 1)});
  std::mt19937_64 random(7);
  std::vector<std::size_t> places = {0, 600, 1100, file.size() - 2000, file.size() - 3};
  for (int i = 0; i < 40; ++i) places.push_back(random() % file.size());
  for (const auto at : places) {
    auto bad = file;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    const auto message = message_of([&] { import(kRockets, bad); });
    // What tar does not need (times, padding) may differ: then all of it is imported, and no less.
    if (message.empty()) {
      EXPECT_EQ(content(bad), content(file)) << at;
      continue;
    }
    EXPECT_TRUE(message.starts_with("invalid: ")) << at << ": " << message;
    if (runs_in(kRockets) == 0) {
      EXPECT_TRUE(untouched(kRockets)) << at << ": " << message;
    }
  }
}

TEST_P(ExportOf, ACutFileLeavesNothing) {
  const auto file = exported(kFlights, {make_run(0, "first", 1), make_run(0, "second", 2)});
  for (std::size_t cut = 0; cut < file.size() - 1024; cut += file.size() / 23) {
    SCOPED_TRACE(cut);
    EXPECT_ERROR(import(kRockets, file.substr(0, cut)), Code::invalid);
    EXPECT_TRUE(untouched(kRockets));
  }
}

TEST_P(ExportOf, RefusesHostileArchivesThatATrustedKeySigned) {
  const auto id = make_run(0, "first", 1);
  const auto file = exported(kFlights, {id});
  const auto refused = [&](const std::function<void(Files&, json::object&)>& change) {
    const auto message = message_of([&] { import(kRockets, altered(file, change)); });
    EXPECT_TRUE(untouched(kRockets)) << message;
    return message;
  };
  const auto rename_last = [&](const std::string& name) {
    return refused([&](Files& files, json::object& manifest) {
      files.back().first = name;
      manifest["members"].as_array().back().as_object()["name"] = name;
    });
  };
  EXPECT_THAT(rename_last("/etc/passwd"), HasSubstr("no file of an export has the name"));
  EXPECT_THAT(rename_last("../../etc/passwd"), HasSubstr("no file of an export has the name"));
  EXPECT_THAT(rename_last("runs/" + id + "/artifacts/../../x"), HasSubstr("invalid path"));
  EXPECT_THAT(rename_last("runs/" + id + "/artifacts/%2e%2e/x"), HasSubstr("'..'"));
  EXPECT_THAT(rename_last("runs/" + id + "/other"), HasSubstr("no file of an export has the name"));
  EXPECT_THAT(rename_last("runs/" + std::string(32, '0') + "/artifacts/x"), HasSubstr("a run that is not listed"));
  EXPECT_THAT(rename_last("runs/" + id + "/artifacts/empty"), HasSubstr("is listed twice"));
  EXPECT_THAT(refused([](Files& files, json::object&) { files.pop_back(); }), HasSubstr("is missing"));
  EXPECT_THAT(refused([](Files& files, json::object&) { files.push_back(files.back()); }),
              HasSubstr("is not in the manifest"));
  EXPECT_THAT(refused([](Files& files, json::object&) { std::swap(files[4], files[5]); }), HasSubstr("stands where"));
  EXPECT_THAT(refused([](Files& files, json::object&) { files.back().second += "x"; }),
              HasSubstr("not the 300000 of the manifest"));
  EXPECT_THAT(refused([](Files& files, json::object&) { files.back().second[5] ^= 1; }),
              HasSubstr("is not what was signed"));
  EXPECT_THAT(refused([](Files&, json::object& m) { m["members"].as_array()[0].as_object()["bytes"] = 1LL << 40; }),
              HasSubstr("not the 1099511627776 of the manifest"));
  EXPECT_THAT(refused([](Files&, json::object& m) { m["members"].as_array()[0].as_object()["bytes"] = -1; }),
              HasSubstr("members[0].bytes"));
  EXPECT_THAT(refused([](Files&, json::object& m) { m["format"] = "falaj-run-export/2"; }),
              HasSubstr("its format is not falaj-run-export/1"));
  EXPECT_THAT(
      refused([](Files&, json::object& m) { m["runs"].as_array().push_back("00000000000000000000000000000000"); }),
      HasSubstr("has no file"));
  // A run that claims to be another.
  const auto rewrite_run = [&](const std::string& key, json::value value) {
    return refused([&](Files& files, json::object& manifest) {
      auto run = parse_json(trimmed(files[2].second)).as_object();
      run[key] = std::move(value);
      files[2].second = canonical(run) + "\n";
      auto& member = manifest["members"].as_array()[0].as_object();
      member["bytes"] = files[2].second.size();
      member["sha256"] = crypto::sha256(files[2].second).hex();
    });
  };
  EXPECT_THAT(rewrite_run("run_id", json::string(32, 'f')), HasSubstr("is of run"));
  EXPECT_THAT(rewrite_run("status", "MAYBE"), HasSubstr("status"));
  EXPECT_THAT(rewrite_run("params", json::object{{"../x", "1"}}), HasSubstr("params"));
  EXPECT_THAT(rewrite_run("series", json::array{}), HasSubstr("a series that the run does not have"));
}

TEST_P(ExportOf, GoesWhereItIsTold) {
  const auto other = track->create_experiment(kFlights, "delays", {}, act);
  const auto file = exported(kFlights, {make_run(0, "a", 1), make_run(other, "b", 2)});
  EXPECT_THAT(import(kRockets, file, 1, "arrived").experiments, ElementsAre("arrived"));
  EXPECT_EQ(track->search_experiments(kRockets, {}).items.size(), 2U);
  EXPECT_THAT(import(kRockets, file).experiments, IsEmpty()) << "nothing needs the other one";
  const auto number = track->experiment_by_name(kRockets, "arrived").number;
  EXPECT_EQ(track->search_runs(kRockets, {{number}, "", {}, View::active, 0, 10}).items.size(), 2U)
      << "a run that is there stays in its experiment";
  track->set_experiment_stage(kRockets, number, Stage::deleted, act);
  EXPECT_ERROR(import(kRockets, file, 1, "arrived"), Code::conflict);
}

// What a kill leaves: the files, and some of the runs.
TEST_P(ExportOf, ImportingAgainFinishesWhatWasInterrupted) {
  const std::vector<std::string> ids = {make_run(0, "a", 1), make_run(0, "b", 2), make_run(0, "c", 3)};
  const auto file = exported(kFlights, ids);
  import(kRockets, exported(kFlights, {ids[0]}));
  base.put(kRockets, run_artifact(ids[1], "empty"), "");
  const auto rest = import(kRockets, file);
  EXPECT_EQ(rest.made, 2);
  EXPECT_EQ(rest.files, 5);
  EXPECT_EQ(content(exported(kRockets, ids)), content(file));
}

TEST_P(ExportOf, AStoreThatFailsLeavesNothingAndTheNextTryWorks) {
  const auto file = exported(kFlights, {make_run(0, "a", 1)});
  int puts = 0;
  base.should_fail = [&](blob::BackendCall call, const std::string&) {
    return call == blob::BackendCall::put && ++puts == 3;
  };
  base.restart();
  track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  EXPECT_ERROR(import(kRockets, file), Code::unavailable);
  EXPECT_TRUE(untouched(kRockets));
  EXPECT_EQ(import(kRockets, file).made, 1);
}

TEST_P(ExportOf, LongHistoriesOfManyBlocksAreMergedByPoint) {
  const auto id = track->create_run(kFlights, {0, "long", "", {}, {}}, act).info.run_id;
  std::vector<Point> all;
  const int calls = repeats(140), imported = repeats(61);
  for (int call = 0; call < calls; ++call) {
    Batch batch;
    for (int i = 0; i < 1000; ++i) {
      const int n = call * 1000 + i;
      batch.metrics.push_back({"loss", {n / 3, n, n * 0.5}, "", "", ""});
    }
    track->log(kFlights, id, batch, act);
    if (call + 1 == imported) import(kRockets, exported(kFlights, {id}));
  }
  const auto file = exported(kFlights, {id});
  EXPECT_EQ(import(kRockets, file).points, (calls - imported) * 1000);
  EXPECT_EQ(content(exported(kRockets, {id})), content(file));
  EXPECT_EQ(import(kRockets, file).points, 0);
}

TEST_P(ExportOf, RefusesRunsThatAreNotThere) {
  EXPECT_ERROR(exported(kFlights, {std::string(32, '0')}), Code::not_found);
  EXPECT_ERROR(exported(kFlights, {}), Code::not_found);
  EXPECT_ERROR(exported(kCargo, {make_run(0, "a", 1)}), Code::not_found);
}

INSTANTIATE_TEST_SUITE_P(Engines, ExportOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::track
