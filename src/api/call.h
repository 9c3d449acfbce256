// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "api/platform.h"
#include "api/route.h"
#include "foundation/base/shape.h"
#include "governance/iam/directory.h"
#include "storage/sql/database.h"

namespace falaj::api {

// One API call after it was admitted: who asks, for what, and the way to change something in their name.
class Call {
 public:
  Call(Platform& platform, const Route& route, const net::Request& request, PathParameters parameters,
       std::optional<iam::Identity> caller)
      : platform_(platform),
        route_(route),
        head_(request.head),
        must_not_wait_(request.must_not_wait),
        is_abandoned_(request.is_abandoned),
        parameters_(std::move(parameters)),
        caller_(std::move(caller)) {}

  const iam::Identity& caller() const;  // Requires: the route is not for anyone
  std::string actor() const;            // "user/ada"; "anyone" before login
  const net::Head& head() const { return head_; }
  const std::string& parameter(std::string_view name) const;  // of the path
  const PathParameters& parameters() const { return parameters_; }
  iam::Scope scope() const;  // the query's, "/" when absent; throws invalid

  bool allows(std::string_view action, const iam::Scope& resource) const;
  void require(std::string_view action, const iam::Scope& resource) const;  // throws denied

  // Whether nobody waits for the answer any more, as net::Request says it; never unset.
  std::function<bool()> is_abandoned() const {
    return is_abandoned_ ? is_abandoned_ : [] { return false; };
  }

  // Said by handlers of Place::here_first before they write, or ask somebody over the network: what was done so far is
  // done again where it may wait.
  void will_wait() const {
    if (must_not_wait_) throw net::MustWait();
  }

  sql::Act act(std::string resource) const;
  // What the audit log says when this call is refused after all. A handler says what it is about once it knows.
  void about(std::string resource) { about_ = std::move(resource); }
  sql::Act denied_act() const;

  // One audited, durable write in the caller's name. With an Idempotency-Key header a repeated call gets the first
  // answer again and has no second effect; the answer is kept sealed, as it may hold a secret.
  template <class F>
  auto write(std::string resource, F&& work) -> std::invoke_result_t<F, sql::Writer&> {
    using Out = std::invoke_result_t<F, sql::Writer&>;
    const sql::Act what = act(std::move(resource));
    if constexpr (std::is_void_v<Out>) {
      write<>(what, [&](sql::Writer& w) { return work(w), Nothing{}; });
    } else {
      return write<>(what, std::forward<F>(work));
    }
  }

  void note_body(std::string_view text);  // what a repeated call is compared by, besides its head

 private:
  template <class F>
  auto write(const sql::Act& what, F&& work) -> std::invoke_result_t<F, sql::Writer&> {
    using Out = std::invoke_result_t<F, sql::Writer&>;
    const std::string key = idempotency_key();
    if (key.empty()) return platform_.database.write(what, work);
    if (auto answer = earlier_answer(key)) return decode<Out>(*answer, "stored answer");
    try {
      return platform_.database.write(what, [&](sql::Writer& w) {
        Out out = work(w);
        remember_answer(w, key, encode(out));
        return out;
      });
    } catch (const Error& e) {
      if (e.code() != Code::conflict) throw;
      // Perhaps the same call, a moment earlier, on another connection.
      if (auto answer = earlier_answer(key)) return decode<Out>(*answer, "stored answer");
      throw;
    }
  }
  std::string idempotency_key() const;  // throws invalid
  Digest request_digest() const;
  std::optional<json::value> earlier_answer(const std::string& key);
  void remember_answer(sql::Writer& writer, const std::string& key, const json::value& answer);

  Platform& platform_;
  const Route& route_;
  const net::Head& head_;
  const bool must_not_wait_;
  const std::function<bool()> is_abandoned_;
  const PathParameters parameters_;
  const std::optional<iam::Identity> caller_;
  std::string about_;
  Digest body_digest_;  // only when there is an Idempotency-Key
};

// What the caller may, for what is asked while it works. The call outlives it.
resource::Authorise authorise(const Call& call);

std::span<const sql::Migration> migrations();  // of the table that keeps answers
// Deletes answers older than a day; returns how many.
std::int64_t forget_old_answers(Platform& platform);

}  // namespace falaj::api
