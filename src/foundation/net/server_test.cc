// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/server.h"

#include <gtest/gtest.h>

#include "foundation/net/testing.h"

namespace falaj::net {
namespace {

Admission echo(const Head& head) {
  return run(head.path.starts_with("/here") ? Place::here : Place::worker, 1 << 20, [](Request& request) {
    return text_response(
        200, std::string(name(request.head.method)) + " " + request.head.path + " " + request.body.read_all());
  });
}

struct ServerTest : testing::Test {
  ServerTest() { test.service.on_admit = echo; }
  TestServer test;
};

TEST_F(ServerTest, AnswersOnBothPlaces) {
  auto c = test.connect();
  for (const std::string place : {"here", "there"}) {
    const auto answer = c.ask("GET /" + place + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "GET /" + place + " ");
    const auto posted = c.ask("POST /" + place + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_EQ(posted.body, "POST /" + place + " hello");
  }
}

}  // namespace
}  // namespace falaj::net
