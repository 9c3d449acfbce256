// SPDX-License-Identifier: Apache-2.0
// what an endpoint is asked now, beside what any version was tested on

#include "lifecycle/watch/now.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/stats/drift.h"
#include "lifecycle/watch/look.h"
#include "lifecycle/watch/watch.h"

namespace falaj::watch {
namespace {

constexpr double kByChance = 0.01;
constexpr std::uint64_t kReferenceBytesMax = 64 << 20;

// Independent values that a sketch is worth.
double worth(const traffic::ColumnSketch& sketch, double effect) {
  return std::max(2.0, static_cast<double>(sketch.present()) / std::max(1.0, effect));
}

// As distances_of counts: categories of the reference, and all others.
std::size_t bins_of(const traffic::ColumnSketch& sketch) {
  if (sketch.holds == traffic::ColumnSketch::Holds::numbers) return kPsiBins;
  return sketch.texts.top(kPsiCategoriesMax).size() + 1;
}

}  // namespace

Reference tested_on(models::Registry& models, vault::Vault& vault, const vault::Where& where, const std::string& model,
                    std::int64_t number) {
  const auto version = models.version(where, model, number);
  for (const auto& entry : models.files(where, version.model_row, number, "")) {
    if (entry.name != "reference.json" && !entry.name.ends_with("/reference.json")) continue;
    if (entry.bytes > kReferenceBytesMax)
      throw Error(Code::invalid, fmt::format("{} is larger than {} bytes", entry.name, kReferenceBytesMax));
    std::string text;
    const auto reader = vault.open(where, entry, 0, entry.bytes);
    for (Bytes piece = reader->next(); !piece.empty(); piece = reader->next()) text += as_text(piece);
    return read_reference(text, fmt::format("what {}/{} was tested on", model, number));
  }
  throw Error(Code::not_found, fmt::format("{}/{} has no reference.json", model, number));
}

Farthest farthest(const Reference& reference, const traffic::Sketches& now) {
  std::vector<Farthest> all;
  for (const auto& [name, was] : reference.columns) {
    const auto is = now.find(name);
    if (was.time || is == now.end() || name.starts_with(traffic::kOutputPrefix)) continue;
    const auto psi = distances_of(was.sketch, is->second).psi;
    if (!psi) continue;
    all.push_back({name, *psi, 0});
  }
  Farthest out;
  for (auto& one : all) {
    const auto& was = reference.columns.at(one.column);
    one.noise = stats::psi_noise(worth(was.sketch, was.effect), worth(now.at(one.column), was.effect),
                                 bins_of(was.sketch), kByChance / static_cast<double>(all.size()));
    if (out.column.empty() || one.psi - one.noise > out.psi - out.noise) out = one;
  }
  return out;
}

Now Watch::now(const Where& where, const std::string& monitor, std::size_t windows) {
  parts_.resources.get({kMonitor, where.tenant.str(), where.project.str(), monitor});  // not_found
  Now out;
  parts_.database.read([&](sql::Reader& r) {
    r.query(
        "SELECT variant, version, looked_at, sealed FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? "
        "AND variant NOT LIKE ? ORDER BY until_us DESC, number DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), monitor, "%" + std::string(kLabelsOf),
         static_cast<std::int64_t>(windows)},
        [&](const sql::Row& row) {
          const Stream stream{where.tenant.str(), where.project.str(), monitor, std::string(row.text(0)),
                              row.integer(1)};
          const auto sketches = unseal(stream, row.bytes(3)).sketches;
          if (sketches.empty()) return;
          traffic::merge_into(out.columns, sketches);
          ++out.windows;
          out.rows += row.integer(2);
        });
  });
  return out;
}

}  // namespace falaj::watch
