// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/testing.h"

#include <algorithm>
#include <array>

#include "lifecycle/track/artifacts.h"

namespace falaj::models {

RegistryFixture::RegistryFixture(std::string_view engine) : base(engine) { start(); }

RegistryFixture::~RegistryFixture() { stop(); }

void RegistryFixture::start() {
  for (const auto& module : {track::Track::migrations(), track::LoggedModels::migrations(), Registry::migrations()})
    base.database->migrate(module);
  track = std::make_unique<track::Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  logged_models = std::make_unique<track::LoggedModels>(*base.database, base.clock, base.random, *base.metrics);
  std::array<std::byte, crypto::Key::kBytes> key{};
  key.fill(std::byte{7});
  webhooks = std::make_unique<Webhooks>(*base.database, crypto::Key::from(key), base.clock, base.random);
  registry = std::make_unique<Registry>(*base.database, *base.directory, *base.vault, *webhooks, *base.signer,
                                        base.clock, *base.metrics);
  promotions = std::make_unique<Promotions>(*base.database, *webhooks, base.clock);
}

void RegistryFixture::stop() {
  promotions.reset();
  registry.reset();
  webhooks.reset();
  logged_models.reset();
  track.reset();
}

void RegistryFixture::restart() {
  stop();
  base.restart();
  start();
}

std::string RegistryFixture::run_with(const Where& where, const std::map<std::string, std::string>& files) {
  const auto run_id = track->create_run(where, {}, act()).info.run_id;
  for (const auto& [path, text] : files) base.put(where, track::run_artifact(run_id, path), text);
  return run_id;
}

std::string RegistryFixture::model_with(const Where& where, const std::string& run_id,
                                        const std::map<std::string, std::string>& files) {
  track::NewLoggedModel wanted;
  wanted.source_run_id = run_id;
  const auto model_id = logged_models->create(where, wanted, act()).model_id;
  for (const auto& [path, text] : files) base.put(where, track::model_artifact(model_id, path), text);
  return model_id;
}

Version RegistryFixture::version_of(const Where& where, const std::string& model, const std::string& run_id) {
  try {
    registry->create_model(where, model, {}, "", act());
  } catch (const Error& e) {
    if (e.code() != Code::exists) throw;
  }
  NewVersion wanted;
  wanted.model = model;
  wanted.source = "runs:/" + run_id + "/model";
  wanted.run_id = run_id;
  return registry->create_version(where, wanted, act());
}

}  // namespace falaj::models
