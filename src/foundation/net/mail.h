// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/net/client.h"

namespace falaj::net {

struct Letter {
  std::string from;  // "falaj@example.org"
  std::vector<std::string> to;
  std::string subject, text;  // UTF-8; lines end with '\n'
  std::string message_id;     // letters and digits, unique: the same for every try, so that receivers can tell
  std::int64_t unix_s = 0;
};

// "name@host" of plain characters: nothing that could end a line or begin an option of the protocol.
bool is_mail_address(std::string_view text);
inline constexpr std::string_view kMailAddressRule = "name@host, of letters, digits and .+-_";

// Pure. The letter as it goes over the wire: headers that hold no line ends of their own, the text in base64.
std::string compose(const Letter& letter);

struct MailServer {
  std::string host;
  std::uint16_t port = 587;
  enum class Tls { starttls, from_start, none } tls = Tls::starttls;
  std::string user, password;  // "" = not asked for
};

// Hands letters to a mail server that a user configured, under the same rules as other outgoing calls. Thread-safe.
// Errors: invalid (an address; the server refuses for good), denied (rules; TLS not trusted; password not taken),
// unavailable (no connection, or it says to come again), deadline.
class Mailer {
 public:
  Mailer(ClientOptions options, OutgoingRules rules, sys::Resolver& resolver);
  void send(const MailServer& server, const Letter& letter);

 private:
  const ClientOptions options_;
  const OutgoingRules rules_;
  sys::Resolver& resolver_;
};

}  // namespace falaj::net
