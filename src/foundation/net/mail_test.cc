// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/mail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/sys/sim_net.h"

namespace falaj::net {
namespace {

using testing::HasSubstr;
using testing::Not;

Letter letter() {
  return {"falaj@example.org", {"ops@example.org", "ada@example.org"}, "late: zu spät", "it is late\n", "id1",
          1'700'000'000};
}

TEST(Letters, AreComposed) {
  const auto text = compose(letter());
  EXPECT_THAT(text, HasSubstr("Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n"));
  EXPECT_THAT(text, HasSubstr("From: <falaj@example.org>\r\n"));
  EXPECT_THAT(text, HasSubstr("To: <ops@example.org>,\r\n <ada@example.org>\r\n"));
  EXPECT_THAT(text, HasSubstr("Subject: =?utf-8?B?bGF0ZTogenUgc3DDpHQ=?=\r\n"));
  EXPECT_THAT(text, HasSubstr("Message-ID: <id1@example.org>\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\n\r\naXQgaXMgbGF0ZQo=\r\n"));
}

TEST(Letters, HoldNoLinesThatASubjectOrTextBrings) {
  auto bad = letter();
  bad.subject = "x\r\nBcc: <eve@example.org>";
  bad.text = "\r\n.\r\nMAIL FROM:<eve@example.org>";
  const auto text = compose(bad);
  EXPECT_THAT(text, Not(HasSubstr("Bcc")));
  EXPECT_THAT(text, Not(HasSubstr("MAIL FROM")));
  for (const auto line : split(text, '\n')) EXPECT_LE(line.size(), 78U) << line;
}

TEST(Letters, HaveLongSubjectsInWordsOfWholeCharacters) {
  auto wide = letter();
  wide.subject.clear();
  for (int i = 0; i < 60; ++i) wide.subject += "ä";
  const auto text = compose(wide);
  std::string back;
  for (auto at = text.find("?B?"); at != std::string::npos; at = text.find("?B?", at + 1)) {
    const auto bytes = from_base64(text.substr(at + 3, text.find("?=", at) - at - 3));
    const auto word = as_text(bytes);
    EXPECT_TRUE(is_utf8(word));
    back += word;
  }
  EXPECT_EQ(back, wide.subject);
}

TEST(MailAddresses, ArePlain) {
  for (const auto* good : {"a@b", "ops+falaj@mail.example.org", "a_b.c@x-y.z"}) EXPECT_TRUE(is_mail_address(good));
  for (const auto* bad : {"", "@b", "a@", "ab", "a b@c", "a@b@c", "a@b\r\nRCPT", "<a@b>", "-a@b", "a@-b", "\"a\"@b"})
    EXPECT_FALSE(is_mail_address(bad)) << bad;
  EXPECT_FALSE(is_mail_address("a@" + std::string(300, 'b')));
}

// A mail server of one conversation: takes what comes and answers from a list.
class OneConversation {
 public:
  explicit OneConversation(std::string to_rcpt) : to_rcpt_(std::move(to_rcpt)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { talk(); });
  }
  ~OneConversation() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string heard() {
    thread_.join();
    thread_ = std::thread([] {});
    return heard_;
  }
  std::uint16_t port = 0;

 private:
  void talk() {
    const int peer = ::accept(listener_, nullptr, nullptr);
    if (peer < 0) return;
    const auto say = [&](std::string_view text) { (void)!::write(peer, text.data(), text.size()); };
    say("220 ready\r\n");
    std::string line;
    bool data = false;
    for (char c = 0; ::read(peer, &c, 1) == 1;) {
      line += c;
      if (c != '\n') continue;
      heard_ += line;
      if (data) {
        if (line == ".\r\n") data = false, say("250 taken\r\n");
      } else if (line.starts_with("RCPT")) {
        say(to_rcpt_);
      } else if (line.starts_with("DATA")) {
        data = true;
        say("354 go on\r\n");
      } else if (line.starts_with("QUIT")) {
        say("221 bye\r\n");
        break;
      } else {
        say("250 good\r\n");
      }
      line.clear();
    }
    ::close(peer);
  }
  const std::string to_rcpt_;
  int listener_ = -1;
  std::string heard_;
  std::thread thread_;
};

class Mailing : public testing::Test {
 protected:
  void SetUp() override {
    resolver.set("mail.example", {sys::Address::parse("127.0.0.1")});
    rules = {{"mail.example"}, true, true};
  }
  void send(std::uint16_t port, MailServer::Tls tls = MailServer::Tls::none) {
    ClientOptions options;
    options.total_wait_us = 10'000'000;
    Mailer(options, rules, resolver).send({"mail.example", port, tls, "", ""}, letter());
  }
  sys::SimResolver resolver;
  OutgoingRules rules;
};

TEST_F(Mailing, HandsTheLetterToTheServer) {
  OneConversation server("250 good\r\n");
  send(server.port);
  const auto heard = server.heard();
  EXPECT_THAT(heard, HasSubstr("MAIL FROM:<falaj@example.org>"));
  EXPECT_THAT(heard, HasSubstr("RCPT TO:<ops@example.org>"));
  EXPECT_THAT(heard, HasSubstr("RCPT TO:<ada@example.org>"));
  EXPECT_THAT(heard, HasSubstr("Message-ID: <id1@example.org>"));
}

TEST_F(Mailing, TellsRefusalsForGoodFromThoseForNow) {
  {
    OneConversation server("550 no such person\r\n");
    EXPECT_ERROR(send(server.port), Code::invalid);
  }
  OneConversation server("450 come again\r\n");
  EXPECT_ERROR(send(server.port), Code::unavailable);
}

TEST_F(Mailing, NeedsTlsWhereItIsAskedFor) {
  OneConversation server("250 good\r\n");
  EXPECT_ERROR(send(server.port, MailServer::Tls::starttls), Code::denied);
}

TEST_F(Mailing, ObeysTheOutgoingRules) {
  rules.plain_http = false;
  EXPECT_ERROR(send(1), Code::denied);
  rules = {{"mail.example"}, true, false};
  EXPECT_ERROR(send(1), Code::denied);
  rules = {{"other.example"}, true, true};
  EXPECT_ERROR(send(1), Code::denied);
  rules = {{"mail.example"}, true, true};
  EXPECT_ERROR(send(1), Code::unavailable);
}

}  // namespace
}  // namespace falaj::net
