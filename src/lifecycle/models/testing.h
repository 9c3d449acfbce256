// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole registry on a vault and an empty audited database, for the tests of it and of what stands on it.

#include <memory>
#include <string>
#include <string_view>

#include "governance/vault/testing.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/webhooks.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::models {

class RegistryFixture {
 public:
  explicit RegistryFixture(std::string_view engine);
  ~RegistryFixture();
  void restart();  // as after a kill of the program

  // A run in the project's default experiment with these files; returns its id.
  std::string run_with(const Where& where, const std::map<std::string, std::string>& files);
  std::string model_with(const Where& where, const std::string& run_id,
                         const std::map<std::string, std::string>& files);
  // A new version of the model, which is made when missing, of the run's directory "model".
  Version version_of(const Where& where, const std::string& model, const std::string& run_id);

  static sql::Act act(std::string actor = "user/ada", std::string verb = "test") {
    return {std::move(actor), std::move(verb), "/", ""};
  }
  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo,
                            kRockets = vault::VaultFixture::kRockets;

  vault::VaultFixture base;
  std::unique_ptr<track::Track> track;
  std::unique_ptr<track::LoggedModels> logged_models;
  std::unique_ptr<Webhooks> webhooks;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<Promotions> promotions;

 private:
  void start();
  void stop();
};

}  // namespace falaj::models
