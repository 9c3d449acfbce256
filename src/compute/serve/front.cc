// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/front.h"

#include "foundation/net/codes.h"

namespace falaj::serve {

net::Admission Front::admit(const net::Head& head) {
  if (head.path != "/metrics") return rest_.admit(head);
  net::Admission out;
  out.place = net::Place::worker;  // some thousand lines: models are run on the I/O threads
  out.handle = [this](net::Request& request) {
    net::Response response;
    const protocol::Caller caller{&request.head.headers, &request.head.peer, request.head.request_id};
    try {
      response.body = host_.metrics(caller) + metrics_.render();
      response.headers.add("Content-Type", "text/plain; version=0.0.4");
    } catch (const Error& e) {
      response = net::error_response(net::row_of(e.code()).http, e, request.head.request_id);
    }
    return response;
  };
  return out;
}

}  // namespace falaj::serve
