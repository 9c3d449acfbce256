// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/mail.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include <curl/curl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/net/curl.h"
#include "foundation/net/outgoing.h"

namespace falaj::net {
namespace {

constexpr std::size_t kAddressMax = 254, kBase64Line = 76;
// Of UTF-8 in one encoded word of a header: it and what stands around it fit in 75 characters.
constexpr std::size_t kEncodedWordMax = 45;

// Words of a header in base64 (RFC 2047), as a subject may be in any script and hold anything.
std::string encoded_words(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    auto n = std::min(text.size(), kEncodedWordMax);
    while (n > 1 && n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;  // whole characters
    if (!out.empty()) out += "\r\n ";
    out += fmt::format("=?utf-8?B?{}?=", to_base64(as_bytes(text.substr(0, n))));
    text.remove_prefix(n);
  }
  return out;
}

std::string in_lines(std::string_view base64) {
  std::string out;
  for (std::size_t at = 0; at < base64.size(); at += kBase64Line)
    out += fmt::format("{}\r\n", base64.substr(at, kBase64Line));
  return out;
}

struct Sending {
  std::string text;
  std::size_t at = 0;

  static std::size_t on_send(char* out, std::size_t, std::size_t room, void* self) {
    auto& x = *static_cast<Sending*>(self);
    const auto n = std::min(room, x.text.size() - x.at);
    if (n > 0) std::memcpy(out, x.text.data() + x.at, n);
    x.at += n;
    return n;
  }
};

// What the server says to a command: 4xx is worth another try, 5xx is not.
Error refused(const std::string& where, long said) {
  const auto text = fmt::format("mail to {}: the server answered {}", where, said);
  return {said >= 500 ? Code::invalid : Code::unavailable, text};
}

}  // namespace

bool is_mail_address(std::string_view text) {
  const auto at = text.find('@');
  if (at == std::string_view::npos || at == 0 || at + 1 == text.size() || text.size() > kAddressMax) return false;
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  const auto of_name = [&](unsigned char c) { return plain(c) || c == '+' || c == '_'; };
  const auto name = text.substr(0, at), host = text.substr(at + 1);
  return std::all_of(name.begin(), name.end(), of_name) && std::all_of(host.begin(), host.end(), plain) &&
         name.front() != '-' && host.front() != '-' && host.front() != '.';
}

std::string compose(const Letter& letter) {
  const auto host = letter.from.substr(letter.from.find('@') + 1);
  std::string out;
  out += fmt::format("Date: {:%a, %d %b %Y %H:%M:%S} +0000\r\n", fmt::gmtime(static_cast<std::time_t>(letter.unix_s)));
  out += fmt::format("From: <{}>\r\n", letter.from);
  for (std::size_t i = 0; i < letter.to.size(); ++i)
    out += fmt::format("{}<{}>{}", i == 0 ? "To: " : " ", letter.to[i], i + 1 < letter.to.size() ? ",\r\n" : "\r\n");
  out += fmt::format("Subject: {}\r\n", encoded_words(letter.subject));
  out += fmt::format("Message-ID: <{}@{}>\r\n", letter.message_id, host);
  out += "Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
  out += "Content-Transfer-Encoding: base64\r\n\r\n";
  return out + in_lines(to_base64(as_bytes(letter.text)));
}

Mailer::Mailer(ClientOptions options, OutgoingRules rules, sys::Resolver& resolver)
    : options_(std::move(options)), rules_(std::move(rules)), resolver_(resolver) {
  curl::start();
}

void Mailer::send(const MailServer& server, const Letter& letter) {
  if (!is_mail_address(letter.from)) throw Error(Code::invalid, fmt::format("mail: from must be {}", kMailAddressRule));
  curl::List to, connect_to;
  for (const auto& address : letter.to) {
    if (!is_mail_address(address)) throw Error(Code::invalid, fmt::format("mail: to must be {}", kMailAddressRule));
    curl::append(to, fmt::format("<{}>", address));
  }
  const bool protected_ = server.tls != MailServer::Tls::none;
  const auto address = check_outgoing(rules_, resolver_, protected_, server.host);
  const auto numeric = address.is_v4() ? address.str() : "[" + address.str() + "]";
  const auto where = fmt::format("{}:{}", server.host, server.port);
  curl::append(connect_to, fmt::format("{}:{}:{}:{}", server.host, server.port, numeric, server.port));
  const auto url = fmt::format("{}://{}", server.tls == MailServer::Tls::from_start ? "smtps" : "smtp", where);
  const auto from = fmt::format("<{}>", letter.from);

  Sending sending{compose(letter)};
  curl::OnlyAddress only{address};
  curl::Easy handle(curl_easy_init());
  CHECK(handle, "libcurl gives no handle");
  CURL* h = handle.get();
  curl::set_waits(h, options_);
  curl::set_trust(h, options_);
  curl::set_only(h, only);
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "smtp,smtps");
  curl_easy_setopt(h, CURLOPT_URL, url.c_str());
  curl_easy_setopt(h, CURLOPT_CONNECT_TO, connect_to.get());
  curl_easy_setopt(h, CURLOPT_USE_SSL, static_cast<long>(protected_ ? CURLUSESSL_ALL : CURLUSESSL_NONE));
  if (!server.user.empty()) {
    curl_easy_setopt(h, CURLOPT_USERNAME, server.user.c_str());
    curl_easy_setopt(h, CURLOPT_PASSWORD, server.password.c_str());
  }
  curl_easy_setopt(h, CURLOPT_MAIL_FROM, from.c_str());
  curl_easy_setopt(h, CURLOPT_MAIL_RCPT, to.get());
  curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(h, CURLOPT_READFUNCTION, &Sending::on_send);
  curl_easy_setopt(h, CURLOPT_READDATA, &sending);
  curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(sending.text.size()));
  const auto code = curl_easy_perform(h);
  if (code == CURLE_OK) return;
  long said = 0;
  curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &said);
  if (code == CURLE_LOGIN_DENIED)
    throw Error(Code::denied, fmt::format("mail to {}: user or password not taken", where));
  if (code == CURLE_USE_SSL_FAILED)
    throw Error(Code::denied, fmt::format("mail to {}: the server offers no TLS", where));
  if ((code == CURLE_SEND_ERROR || code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_REMOTE_ACCESS_DENIED) &&
      said >= 400)
    throw refused(where, said);
  throw curl::translate(code, where);
}

}  // namespace falaj::net
