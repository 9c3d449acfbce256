// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/artifacts.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::track {

namespace {

constexpr std::size_t kPage = 1000;
constexpr std::string_view kAfterAll = "\xf4\x8f\xbf\xbf";  // U+10FFFF: sorts behind every name below a directory
constexpr int kDecodingsMax = 8;

std::string named(std::string_view kind, std::string_view id, std::string_view path) {
  return path.empty() ? fmt::format("@{}/{}", kind, id) : fmt::format("@{}/{}/{}", kind, id, path);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

void refuse_escapes(std::string_view path) {
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::invalid, fmt::format("invalid path: {}: '{}'", why, path.substr(0, 200)));
  };
  if (!is_utf8(path)) refuse("it is not UTF-8");
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse("it holds a control character");
    if (c == '\\' || c == '#') refuse("it may not hold '\\' or '#'");
  }
  if (path.starts_with('/')) refuse("it must be relative");
  for (const auto element : split(path, '/'))
    if (element.empty() || element == "." || element == "..") refuse("it may not have empty, '.' or '..' elements");
}

}  // namespace

std::string run_artifact(std::string_view run_id, std::string_view path) { return named("run", run_id, path); }
std::string model_artifact(std::string_view model_id, std::string_view path) { return named("model", model_id, path); }

std::string checked_artifact_path(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return "";
  refuse_escapes(path);
  // A '%' is a character like any other here; but whoever decodes the name once more must not leave the directory.
  std::string seen(path);
  for (int i = 0; i < kDecodingsMax; ++i) {
    auto next = decoded(seen);
    if (next == seen) return std::string(path);
    seen = std::move(next);
    if (seen.starts_with('/') || seen.find('\\') != std::string::npos)
      throw Error(Code::invalid, "invalid path: it hides a separator");
    for (const auto element : split(seen, '/'))
      if (element == "..") throw Error(Code::invalid, "invalid path: it hides a '..' element");
  }
  throw Error(Code::invalid, "invalid path: it is encoded too many times");
}

std::vector<ArtifactInfo> list_artifacts(vault::Vault& vault, const vault::Where& where, const std::string& root) {
  const std::string prefix = root + "/";
  std::vector<ArtifactInfo> out;
  for (std::string after;;) {
    const auto entries = vault.list(where, prefix, after, kPage);
    if (entries.empty()) return out;
    for (const auto& entry : entries) {
      after = entry.name;
      const auto rest = std::string_view(entry.name).substr(prefix.size());
      const auto slash = rest.find('/');
      if (slash == std::string_view::npos) {
        out.push_back({std::string(rest), false, entry.bytes});
        continue;
      }
      // Everything else of this directory is stepped over, not read.
      out.push_back({std::string(rest.substr(0, slash)), true, 0});
      after = fmt::format("{}{}/{}", prefix, rest.substr(0, slash), kAfterAll);
      break;
    }
  }
}

std::size_t remove_artifacts(vault::Vault& vault, const vault::Where& where, const std::string& root,
                             const sql::Act& act) {
  std::size_t removed = 0;
  const auto remove = [&](const std::string& name) {
    try {
      vault.remove(where, name, act);
      ++removed;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;  // somebody else removed it meanwhile
    }
  };
  remove(root);
  for (;;) {
    const auto entries = vault.list(where, root + "/", "", kPage);
    if (entries.empty()) return removed;
    for (const auto& entry : entries) remove(entry.name);
  }
}

}  // namespace falaj::track
