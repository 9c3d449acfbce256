// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/s3_xml.h"

#include <array>
#include <utility>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::blob {

std::vector<std::string_view> elements(std::string_view xml, std::string_view tag) {
  const std::string open = "<" + std::string(tag) + ">", close = "</" + std::string(tag) + ">";
  std::vector<std::string_view> found;
  for (std::size_t at = 0;;) {
    const std::size_t begin = xml.find(open, at);
    if (begin == std::string_view::npos) return found;
    const std::size_t end = xml.find(close, begin + open.size());
    if (end == std::string_view::npos) return found;
    found.push_back(xml.substr(begin + open.size(), end - begin - open.size()));
    at = end + close.size();
  }
}

std::optional<std::string> element_text(std::string_view xml, std::string_view tag) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
      {{"&quot;", '"'}, {"&apos;", '\''}, {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}}};
  const auto found = elements(xml, tag);
  if (found.empty()) return std::nullopt;
  std::string text;
  for (std::string_view rest = found.front(); !rest.empty();) {
    char c = rest.front();
    std::size_t used = 1;
    for (const auto& [entity, stands_for] : kEntities) {
      if (rest.substr(0, entity.size()) == entity) {
        c = stands_for;
        used = entity.size();
      }
    }
    text += c;
    rest.remove_prefix(used);
  }
  return text;
}

S3Listing parse_listing(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos) {
    throw Error(Code::unavailable, "list a bucket: not an answer of S3");
  }
  S3Listing listing;
  for (const auto entry : elements(xml, "Contents")) {
    const auto key = element_text(entry, "Key"), size = element_text(entry, "Size");
    const auto bytes = parse_int(size.value_or(""));
    const auto modified = parse_time(element_text(entry, "LastModified").value_or(""));
    if (!key || !bytes || *bytes < 0 || !modified) {
      throw Error(Code::unavailable, "list a bucket: not an answer of S3");
    }
    listing.blobs.push_back({*key, static_cast<std::uint64_t>(*bytes), *modified});
  }
  listing.truncated = element_text(xml, "IsTruncated").value_or("false") == "true";
  return listing;
}

}  // namespace falaj::blob
