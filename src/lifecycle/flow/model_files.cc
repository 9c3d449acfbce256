// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/model_files.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "compute/graph/check.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/manifest.h"

namespace falaj::flow {
namespace {

constexpr std::uint64_t kLookedThroughMax = std::uint64_t{1} << 30;  // an ONNX file is in memory while it is checked
constexpr std::string_view kRunningNames[] = {".pkl",   ".pickle", ".joblib", ".dill", ".pt", ".pth", ".ckpt", ".h5",
                                              ".keras", ".py",     ".so",     ".dll",  ".sh", ".jar", ".exe",  ".mar"};

Bytes read(vault::Vault& vault, const vault::Where& where, const vault::Entry& entry, std::uint64_t most) {
  Bytes out;
  const auto reader = vault.open(where, entry, 0, std::min(entry.bytes, most));
  for (Bytes piece = reader->next(); !piece.empty(); piece = reader->next())
    out.insert(out.end(), piece.begin(), piece.end());
  return out;
}

std::string checked_onnx(vault::Vault& vault, const vault::Where& where, const vault::Entry& entry) {
  if (entry.bytes > kLookedThroughMax)
    throw Error(Code::invalid,
                fmt::format("is larger than the {} that are looked through", format_bytes(kLookedThroughMax)));
  const auto bytes = read(vault, where, entry, entry.bytes);
  const auto summary = graph::check(bytes);
  return fmt::format("{}: {} nodes, {} of numbers", entry.name, summary.nodes, format_bytes(summary.tensor_bytes));
}

}  // namespace

std::string runs_something(std::string_view name, std::string_view first) {
  const auto lowered = lower(std::string(name));
  for (const auto ending : kRunningNames)
    if (lowered.ends_with(ending)) return fmt::format("a {} file", ending);
  const auto at = [&](std::size_t i) { return i < first.size() ? static_cast<unsigned char>(first[i]) : 0u; };
  if (at(0) == 0x80 && at(1) >= 2 && at(1) <= 5) return "a pickle";
  if (first.starts_with("PK\x03\x04")) return "an archive, as those of torch that hold pickles";
  if (first.starts_with("\x7f"
                        "ELF") ||
      first.starts_with("MZ"))
    return "a program";
  if (first.starts_with("#!")) return "a script";
  if (first.starts_with("\x89HDF")) return "an HDF5 file, which may hold code of layers";
  return "";
}

Finding look_at_files(models::Registry& models, vault::Vault& vault, const vault::Where& where,
                      const models::Version& version) {
  try {
    const auto manifest =
        models::verify(models.manifest(where, version.model_row, version.number), models.public_key());
    const auto entries = models.files(where, version.model_row, version.number, "");
    std::vector<models::ManifestFile> files;
    std::uint64_t bytes = 0;
    for (const auto& entry : entries) {
      files.push_back({entry.name, static_cast<std::int64_t>(entry.bytes), entry.content});
      bytes += entry.bytes;
    }
    models::check_files(manifest, files);
    std::string graphs;
    for (const auto& entry : entries) {
      const auto first = read(vault, where, entry, kFirstBytes);
      if (const auto what = runs_something(entry.name, as_text(first)); !what.empty())
        return {false, fmt::format("not safe: {} is {}, which may run something when it is opened", entry.name, what)};
      if (!lower(entry.name).ends_with(".onnx")) continue;
      try {
        graphs += (graphs.empty() ? "" : ", ") + checked_onnx(vault, where, entry);
      } catch (const Error& e) {
        if (e.retryable()) throw;
        return {false, fmt::format("not safe: {}: {}", entry.name, e.what())};
      }
    }
    if (graphs.empty())
      return {false, "not safe: there is no ONNX model among its files, and other formats are not checked"};
    return {true,
            fmt::format("{} files of {} in all are those that were signed; {}; none runs anything when it is opened",
                        entries.size(), format_bytes(bytes), graphs)};
  } catch (const Error& e) {
    if (e.retryable()) throw;
    return {false, fmt::format("not safe: {}", e.what())};
  }
}

}  // namespace falaj::flow
