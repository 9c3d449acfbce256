// SPDX-License-Identifier: Apache-2.0
// Private to api: features that were read, as JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lifecycle/features/online_views.h"

namespace falaj::api {

// Collects an answer feature by feature. A read gives entity after entity and an answer says feature after feature, so
// values wait as the text they become: nothing else is made of them.
class FeatureText final : public features::FeatureSink {
 public:
  // How the answers of a protocol differ.
  struct Words {
    const char* statuses[4];  // in the order of online::Status
    std::string_view no_time, time_of_windows;
    bool times_are_seconds = false;  // features that are times
  };
  FeatureText(const features::Selection& wanted, std::size_t entities, const Words& words);

  void begin() override;
  void add(std::size_t feature, std::size_t entity, const features::FeatureCell& cell) override;

  // Lists, with their brackets.
  void append_values(std::string& out, std::size_t feature) const;
  void append_statuses(std::string& out, std::size_t feature) const;
  void append_times(std::string& out, std::size_t feature);
  std::size_t bytes() const;  // about, of all of those together

 private:
  void append_value(std::string& out, const features::FeatureCell& cell, online::Type type) const;

  const Words words_;
  const std::size_t entities_;
  std::vector<online::Type> types_;       // of each feature
  std::vector<std::string> values_;       // of each feature
  std::vector<online::Status> statuses_;  // of each feature and entity
  std::vector<std::int64_t> event_us_;    // of each feature and entity
  // An entity's features are mostly of one row, so of one time.
  struct TimeText {
    std::int64_t us = 0;
    std::string text;
  };
  std::vector<TimeText> time_texts_;  // of each entity
};

void append_json_text(std::string& out, std::string_view text);  // with its quotes

}  // namespace falaj::api
