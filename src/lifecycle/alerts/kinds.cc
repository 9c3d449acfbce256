// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/kinds.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::alerts {
namespace {

using resource::Metadata;
using resource::Reference;
using resource::World;

constexpr std::size_t kLabelValueMax = 256;

bool is_finding(std::string_view on) {
  return on == "drift" || on == "quality" || on == "performance" || on == "skew" || on == "loop";
}

void check_labels(const std::map<std::string, std::string>& labels, const std::string& at, Faults& faults) {
  for (const auto& [key, value] : labels) {
    if (!is_name(key)) faults.push_back({at, fmt::format("'{}': a label's name must be {}", key, kNameRule)});
    if (value.size() > kLabelValueMax)
      faults.push_back({at + "." + key, fmt::format("must be at most {} bytes", kLabelValueMax)});
  }
}

void check_rule(const World&, const Metadata& metadata, const RuleSpec& spec, Faults& faults) {
  const bool of_metric = spec.on == "metric";
  if (of_metric != !spec.metric.empty()) faults.push_back({"spec.metric", "required with on: metric, and only there"});
  // What this server counts is of all tenants together.
  if (of_metric != metadata.tenant.empty())
    faults.push_back({"spec.on", of_metric
                                     ? "the server's own metrics are of the whole platform: leave out metadata.tenant "
                                       "and metadata.project"
                                     : "a rule of the platform watches metrics; others belong to a project"});
  if (!spec.threshold && !is_finding(spec.on))
    faults.push_back({"spec.threshold", fmt::format("required with on: {}", spec.on)});
  check_labels(spec.select, "spec.select", faults);
  check_labels(spec.labels, "spec.labels", faults);
}

std::vector<Reference> channels_of(const World&, const Metadata& metadata, const RuleSpec& spec) {
  std::vector<Reference> out;
  for (std::size_t i = 0; i < spec.notify.size(); ++i)
    out.push_back({{"Channel", metadata.tenant, metadata.project, spec.notify[i]}, fmt::format("spec.notify[{}]", i)});
  return out;
}

void check_secret(const Metadata& metadata, const std::string& text, const std::string& at, Faults& faults) {
  if (text.empty()) return;
  const auto parts = split(text, '/');
  const bool good = std::all_of(parts.begin(), parts.end(), is_name) &&
                    parts.size() == (metadata.tenant.empty() ? std::size_t{3} : std::size_t{1});
  if (!good)
    faults.push_back({at, metadata.tenant.empty()
                              ? "must be TENANT/PROJECT/NAME of a secret: the platform has none of its own"
                              : "must be the name of a secret of the project"});
}

void check_mail(const ChannelSpec& spec, Faults& faults) {
  if (!parse_mail_host(spec.server, spec.tls))
    faults.push_back({"spec.server", "required with type: email, as HOST or HOST:PORT"});
  if (!net::is_mail_address(spec.from))
    faults.push_back({"spec.from", fmt::format("required with type: email, as {}", net::kMailAddressRule)});
  if (spec.to.empty()) faults.push_back({"spec.to", "at least one address"});
  if (!spec.url.empty() || !spec.url_secret.empty())
    faults.push_back({"spec.url", "not with type: email, which has a server"});
  if (spec.user.empty() != spec.secret.empty())
    faults.push_back({"spec.secret", "spec.user and spec.secret, the password, go together"});
  if (spec.tls == "none" && !spec.secret.empty()) faults.push_back({"spec.tls", "a password is not sent in the clear"});
}

void check_channel(const World&, const Metadata& metadata, const ChannelSpec& spec, Faults& faults) {
  check_secret(metadata, spec.secret, "spec.secret", faults);
  check_secret(metadata, spec.url_secret, "spec.urlSecret", faults);
  if (spec.type == "email") return check_mail(spec, faults);
  if (!spec.server.empty() || !spec.from.empty() || !spec.to.empty() || !spec.user.empty())
    faults.push_back({"spec.server", "server, user, from and to are for type: email"});
  if (spec.url.empty() == spec.url_secret.empty()) faults.push_back({"spec.url", "either url or urlSecret is needed"});
  if (!spec.url.empty() && !outbox::is_receiver_url(spec.url))
    faults.push_back({"spec.url", fmt::format("must be {}", outbox::kReceiverUrlRule)});
  if (spec.type == "slack" && !spec.secret.empty())
    faults.push_back({"spec.secret", "not with type: slack, whose URL is the secret: urlSecret"});
}

}  // namespace

std::optional<MailHost> parse_mail_host(std::string_view text, std::string_view tls) {
  MailHost out{std::string(text), static_cast<std::uint16_t>(tls == "tls" ? 465 : tls == "none" ? 25 : 587)};
  const auto bracket = text.rfind(']'), colon = text.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon)) {
    const auto port = parse_int(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return std::nullopt;
    out = {std::string(text.substr(0, colon)), static_cast<std::uint16_t>(*port)};
  }
  const auto allowed = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  const bool v6 = out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']';
  const auto inner = v6 ? std::string_view(out.host).substr(1, out.host.size() - 2) : std::string_view(out.host);
  const auto good = [&](unsigned char c) { return allowed(c) || (v6 && c == ':'); };
  if (inner.empty() || !std::all_of(inner.begin(), inner.end(), good)) return std::nullopt;
  return out;
}

std::vector<resource::Kind> alert_kinds() {
  resource::KindOf<ChannelSpec> channel{
      "Channel", "channels", "How somebody is told of alerts.", {.platform = true, .project = true}, check_channel,
      {},        {}};
  resource::KindOf<RuleSpec> rule{"AlertRule",
                                  "alertrules",
                                  "When somebody is told of something, and who.",
                                  {.platform = true, .project = true},
                                  check_rule,
                                  channels_of,
                                  {}};
  return {resource::make_kind(std::move(channel)), resource::make_kind(std::move(rule))};
}

}  // namespace falaj::alerts
