// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows of alerts, their events, silences and what is to be sent. Private to this directory.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/notice.h"
#include "lifecycle/alerts/step.h"
#include "storage/sql/database.h"

namespace falaj::alerts {

std::span<const sql::Migration> alert_migrations();

// The next of an ever growing count.
std::int64_t next_number(sql::Writer& writer, std::string_view of);

AlertState load_state(sql::Reader& reader, const Where& where, std::int64_t now_us);
std::vector<Quiet> load_silences(sql::Reader& reader, const Where& where, std::int64_t now_us);
std::vector<Where> places_with_alerts(sql::Reader& reader);  // that have not ended

void write_alert(sql::Writer& writer, const Where& where, const Alert& alert);
void delete_alert(sql::Writer& writer, const Where& where, std::int64_t number);
// Returns its id.
std::int64_t write_event(sql::Writer& writer, const Where& where, const AlertEvent& event, std::int64_t at_us,
                         const std::string& by);

std::optional<Alert> find_alert(sql::Reader& reader, const Where& where, std::int64_t number);
std::vector<Alert> list_alerts(sql::Reader& reader, const Where& where, const ListAlerts& which);
PastEvent read_event(const sql::Row& row);
std::string scope_of_alert(const Where& where, std::int64_t number);

}  // namespace falaj::alerts
