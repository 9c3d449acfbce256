// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/host.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "compute/serve/inquiry.h"
#include "compute/serve/routing.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"

namespace falaj::serve {
namespace {

constexpr std::string_view kBearer = "Bearer ";

[[noreturn]] void refuse_caller() { throw Error(Code::unauthenticated, "a valid token is needed"); }

std::optional<std::string_view> header(const protocol::Caller& caller, std::string_view name) {
  return caller.headers ? caller.headers->find(name) : std::nullopt;
}

[[noreturn]] void refuse_variants(const ServedEndpoint& endpoint) {
  throw Error(Code::unavailable, endpoint.plan.stopped
                                     ? fmt::format("endpoint '{}' is stopped", endpoint.plan.name)
                                     : fmt::format("endpoint '{}' has no variant that is ready", endpoint.plan.name));
}

const ServedVariant& of_version(const ServedEndpoint& endpoint, const std::string& version) {
  if (const auto* variant = variant_by_version(endpoint, version)) return *variant;
  throw Error(Code::not_found, fmt::format("endpoint '{}' does not serve version '{}'", endpoint.plan.name, version));
}

std::atomic<std::uint64_t> hosts_made{0};

// The same client asks again and again: what was found for its token holds as long as the catalogue does.
struct Recognised {
  std::uint64_t host = 0, catalogue = 0;
  std::int64_t expires_us = 0;
  std::string header;
  const KnownCaller* caller = nullptr;  // of that catalogue
};
thread_local Recognised recognised;

}  // namespace

Host::Host(const sys::Clock& clock, CrashNote* note, Predictions* predictions, Calls calls)
    : clock_(clock),
      note_(note),
      predictions_(predictions),
      shadows_(clock, CrashNote::of_other(note, 0)),
      calls_(calls),
      slow_(clock, calls.slow_threads > 0 ? calls.slow_threads : std::max(1u, std::thread::hardware_concurrency()),
            note),
      number_(++hosts_made),
      catalogue_(std::make_shared<const Catalogue>()) {}

Host::~Host() = default;

std::shared_ptr<const Catalogue> Host::catalogue() const {
  Lock lock(mu_);
  return catalogue_;
}

std::vector<Lane*> Host::take_over(std::shared_ptr<Catalogue> catalogue) {
  catalogue->number = catalogue_->number + 1;
  published_.store(catalogue->number, std::memory_order_release);
  catalogue_ = std::move(catalogue);
  std::vector<Lane*> lanes;
  for (auto& [loop, lane] : lanes_) lanes.push_back(lane.get());
  return lanes;
}

void Host::publish(std::shared_ptr<Catalogue> catalogue) {
  std::vector<Lane*> lanes;
  {
    Lock lock(mu_);
    lanes = take_over(catalogue);
  }
  tell(lanes, catalogue);
}

void Host::revoke(const std::vector<traffic::Revoked>& what) {
  std::shared_ptr<Catalogue> narrowed;
  std::vector<Lane*> lanes;
  {
    Lock lock(mu_);
    if (catalogue_->number == 0) return;
    narrowed = std::make_shared<Catalogue>(*catalogue_);
    serve::revoke(*narrowed, what);
    lanes = take_over(narrowed);
  }
  tell(lanes, narrowed);
}

// A lane that nobody asks would hold the models of the catalogue before; and one that just did looks again here.
void Host::tell(const std::vector<Lane*>& lanes, const std::shared_ptr<const Catalogue>& catalogue) {
  for (auto* lane : lanes)
    lane->loop().post([lane, catalogue] {
      if (!lane->catalogue || lane->catalogue->number < catalogue->number) lane->catalogue = catalogue;
      lane->tidy(*lane->catalogue);
      lane->retry_parked();
    });
}

void Host::close() {
  slow_.close();  // what it calls comes back to loops, which end after us
  Lock lock(mu_);
  for (auto& [loop, lane] : lanes_) {
    std::shared_ptr<Lane> last(std::move(lane));
    loop->post([last]() mutable { last.reset(); });
  }
  lanes_.clear();
}

Lane& Host::lane_of(net::Loop& loop) {
  struct Known {
    std::uint64_t host = 0;
    net::Loop* loop = nullptr;
    Lane* lane = nullptr;
  };
  thread_local Known known;
  if (known.host != number_ || known.loop != &loop) {
    Lock lock(mu_);
    auto& lane = lanes_[&loop];
    const auto place = lanes_.size() - 1;
    if (!lane)
      lane = std::make_unique<Lane>(loop, clock_,
                                    note_ && place < CrashNote::kThreads / 2 ? &note_->running[place] : nullptr, slow_,
                                    calls_.slow_from, calls_.worked);
    known = {number_, &loop, lane.get()};
  }
  auto& lane = *known.lane;
  if (!lane.catalogue || lane.catalogue->number != published_.load(std::memory_order_acquire))
    lane.catalogue = catalogue();
  return lane;
}

void Host::admit(const protocol::Caller& caller) const {
  // Without the lock, as every request comes by.
  if (!recognises(caller, published_.load(std::memory_order_acquire))) authenticate(*catalogue(), caller);
}

bool Host::recognises(const protocol::Caller& caller, std::uint64_t catalogue) const {
  if (recognised.host != number_ || recognised.catalogue != catalogue) return false;
  const auto given = header(caller, "authorization");
  return given && crypto::equal_in_constant_time(as_bytes(*given), as_bytes(recognised.header)) &&
         recognised.expires_us > clock_.wall().count();
}

const KnownCaller& Host::authenticate(const Catalogue& catalogue, const protocol::Caller& caller) const {
  if (catalogue.number == 0) throw Error(Code::unavailable, "the server is starting");
  if (recognises(caller, catalogue.number)) return *recognised.caller;
  const auto given = header(caller, "authorization");
  if (!given || !given->starts_with(kBearer)) refuse_caller();
  const auto parsed = crypto::parse_credential(crypto::CredentialKind::token, given->substr(kBearer.size()));
  if (!parsed) refuse_caller();
  const auto found = catalogue.callers.find(parsed->id.str());
  const auto hash = crypto::sha256(BytesView(parsed->secret));
  if (found == catalogue.callers.end() ||
      !crypto::equal_in_constant_time(hash.view(), found->second.secret_hash.view()) ||
      found->second.expires_us <= clock_.wall().count())
    refuse_caller();
  recognised = {number_, catalogue.number, found->second.expires_us, std::string(*given), &found->second};
  return found->second;
}

const ServedEndpoint& Host::find(const Catalogue& catalogue, const KnownCaller& caller,
                                 const std::string& model) const {
  const auto [begin, end] = catalogue.by_name.equal_range(model);
  const ServedEndpoint* only = nullptr;
  for (auto at = begin; at != end; ++at) {
    if (!std::binary_search(caller.endpoints.begin(), caller.endpoints.end(), at->second)) continue;
    const auto& endpoint = catalogue.endpoints[at->second];
    if (only)
      throw Error(Code::invalid, fmt::format("several endpoints are called '{}': say {} or {}", model, only->full_name,
                                             endpoint.full_name));
    only = &endpoint;
  }
  if (!only) throw Error(Code::not_found, fmt::format("there is no endpoint '{}' that this token may ask", model));
  return *only;
}

template <class Asked>
const ServedVariant& Host::choose(const ServedEndpoint& endpoint, const protocol::Caller& caller,
                                  const Asked& ask) const {
  const auto& variants = endpoint.variants;
  if (!ask.version.empty()) return of_version(endpoint, ask.version);
  for (const auto& variant : variants)
    if (!variant.plan.header.empty() && header(caller, variant.plan.header) == variant.plan.value) return variant;
  double place = 0;
  if (variants.size() > 1) {
    std::string key;
    const std::string_view sticky = endpoint.plan.sticky;
    if (sticky.starts_with("header:")) key = header(caller, sticky.substr(7)).value_or("");
    if (sticky.starts_with("input:")) key = sticky_key(ask, sticky.substr(6));
    if (key.empty()) key = caller.request_id;
    place = traffic::place_of(endpoint.full_name, key);
  }
  const int chosen = traffic::choose(endpoint.weights, place);
  if (chosen < 0) refuse_variants(endpoint);
  return variants[static_cast<std::size_t>(chosen)];
}

void Host::give_name(Inquiry& inquiry, const ServedEndpoint& endpoint, const protocol::Caller& caller) const {
  if (!predictions_ || !endpoint.plan.names) return;
  std::string key;
  if (endpoint.log && !endpoint.log->key_header.empty()) key = header(caller, endpoint.log->key_header).value_or("");
  inquiry.give_name(*predictions_, std::move(key));
}

void Host::infer(const protocol::Caller& caller, protocol::Ask ask, net::Loop& loop, protocol::Done done) {
  auto& lane = lane_of(loop);
  const auto from = lane.catalogue;
  const auto& endpoint = find(*from, authenticate(*from, caller), ask.model);
  const auto& variant = choose(endpoint, caller, ask);
  if (!variant.held->model) return await(endpoint, variant, caller, lane, std::move(ask), std::move(done));
  go(lane, endpoint, variant, caller, ask_tensors(from, endpoint, variant, clock_, std::move(ask), std::move(done)));
}

void Host::go(Lane& lane, const ServedEndpoint& endpoint, const ServedVariant& variant, const protocol::Caller& caller,
              std::unique_ptr<Inquiry> inquiry) {
  for (const auto& other : endpoint.variants) {
    if (!other.plan.shadow || &other == &variant) continue;
    shadows_.offer(lane.catalogue, other, *variant.held, inquiry->inputs);
    if (!other.held->model && wake) wake(name_of(endpoint, other));
  }
  give_name(*inquiry, endpoint, caller);
  if (variant.cache && answer_again(lane, variant, inquiry)) return;
  const auto now = inquiry->began();
  lane.push(variant, std::move(inquiry), now);
}

// Whether an equal request was answered before: then this one is, as that was. Else its answer will be kept.
bool Host::answer_again(Lane& lane, const ServedVariant& variant, std::unique_ptr<Inquiry>& inquiry) const {
  const auto began = clock_.now();
  auto key = AnswerCache::key_of(*inquiry);
  const auto known = variant.cache->find(key);
  (known ? variant.counts->cache_hit : variant.counts->cache_miss).add((clock_.now() - began).count());
  variant.counts->last_us.store(clock_.wall().count(), std::memory_order_relaxed);
  if (!known) {
    inquiry->keep_answer_as(std::move(key));
    return false;
  }
  lane.loop().post([known, again = std::shared_ptr<Inquiry>(std::move(inquiry))] {
    std::vector<std::vector<std::string_view>> texts;
    std::vector<infer::TensorView> outputs;
    for (const auto& tensor : *known) {
      texts.emplace_back(tensor.texts.begin(), tensor.texts.end());
      outputs.push_back(infer::TensorView::of(tensor, texts.back()));
    }
    again->answer({outputs, infer::Micros{0}, infer::Micros{0}, again->rows});
  });
  return true;
}

// Has the variant woken, and asks again when it is. What the caller said stays until it is answered.
template <class Asked, class Done>
void Host::await(const ServedEndpoint& endpoint, const ServedVariant& variant, const protocol::Caller& caller,
                 Lane& lane, Asked ask, Done done) {
  const auto began = clock_.now();
  const auto own = variant.rule.deadline_default.count();
  const auto allowed = ask.timeout_us > 0 && ask.timeout_us < own ? ask.timeout_us : own;
  auto waiting = std::make_shared<std::pair<Asked, Done>>(std::move(ask), std::move(done));
  lane.park(began + infer::Micros(allowed),
            [this, caller, &lane, waiting, counts = variant.counts, began](const std::optional<Error>& why) {
              counts->woken.add((clock_.now() - began).count());
              if (why) return waiting->second(*why);
              try {
                again(caller, std::move(waiting->first), lane.loop(), waiting->second);
              } catch (const Error& e) {
                waiting->second(e);
              } catch (const std::exception& e) {
                log::error("request_failed", {{"what", e.what()}});
                waiting->second(Error(Code::internal, "internal error"));
              }
            });
  if (wake) wake(name_of(endpoint, variant));
}

// The rows get the features of the entities that they name; the answer says which, where that is asked for.
void Host::look_up(const Catalogue& catalogue, const KnownCaller& caller, const ServedEndpoint& endpoint,
                   const ServedVariant& variant, protocol::Predict& ask, PredictDone& done) const {
  if (!endpoint.features) {
    if (ask.explain || ask.as_of_us)
      throw Error(Code::invalid, fmt::format("{}: endpoint '{}' looks up no features",
                                             ask.explain ? "explain" : "as_of", endpoint.plan.name));
    return;
  }
  const auto place = static_cast<std::uint32_t>(&endpoint - catalogue.endpoints.data());
  if (ask.explain && !std::binary_search(caller.explains.begin(), caller.explains.end(), place))
    throw Error(
        Code::denied,
        fmt::format("explain: shows features of service '{}', which takes feature.read on all of its views, and "
                    "none that is about people",
                    endpoint.plan.features->service));
  json::object explained;
  endpoint.features->fill(ask, variant.held->inputs, clock_, ask.explain ? &explained : nullptr);
  if (!ask.explain) return;
  done = [explained = std::move(explained),
          done = std::move(done)](std::variant<protocol::Predicted, Error> outcome) mutable {
    if (auto* predicted = std::get_if<protocol::Predicted>(&outcome))
      predicted->served["features"] = std::move(explained);
    done(std::move(outcome));
  };
}

void Host::predict(const protocol::Caller& caller, protocol::Predict ask, net::Loop& loop,
                   std::function<void(std::variant<protocol::Predicted, Error>)> done) {
  auto& lane = lane_of(loop);
  const auto from = lane.catalogue;
  const auto& known = authenticate(*from, caller);
  const auto& endpoint = find(*from, known, ask.model);
  const auto& variant = choose(endpoint, caller, ask);
  if (!variant.held->model) return await(endpoint, variant, caller, lane, std::move(ask), std::move(done));
  look_up(*from, known, endpoint, variant, ask, done);
  go(lane, endpoint, variant, caller, ask_rows(from, endpoint, variant, clock_, ask, std::move(done)));
}

bool Host::ready(const protocol::Caller& caller, const std::string& model, const std::string& version) const {
  const auto from = catalogue();
  const auto& endpoint = find(*from, authenticate(*from, caller), model);
  if (version.empty()) return traffic::choose(endpoint.weights, 0) >= 0;
  return variant_by_version(endpoint, version) != nullptr;
}

protocol::Description Host::describe(const protocol::Caller& caller, const std::string& model,
                                     const std::string& version) const {
  const auto from = catalogue();
  const auto& endpoint = find(*from, authenticate(*from, caller), model);
  const auto* named = version.empty() ? main_variant(endpoint) : &of_version(endpoint, version);
  if (!named) refuse_variants(endpoint);
  const auto& variant = *named;
  protocol::Description out;
  out.model = endpoint.plan.name;
  for (const auto& served : endpoint.variants)
    if (&served == &variant || (version.empty() && !served.plan.shadow)) out.versions.push_back(served.version_text);
  const auto& held = *variant.held;
  out.platform = "onnxruntime_onnx";
  out.inputs = held.inputs;
  out.outputs = held.outputs;
  out.rows_first = held.rows_first;
  out.rows_max = held.rows_first ? variant.rule.rows_max : 0;
  out.wait_us_max = variant.rule.wait_max.count();
  out.properties = {{"engine", held.model ? std::string(held.model->engine()) : "asleep"},
                    {"endpoint", endpoint.full_name},
                    {"variant", variant.plan.name},
                    {"sha256", variant.plan.sha256}};
  if (endpoint.features) {
    out.properties["features"] = endpoint.features->plan().service;
    endpoint.features->describe(out);
  }
  return out;
}

std::vector<protocol::Statistics> Host::statistics(const protocol::Caller& caller, const std::string& model,
                                                   const std::string& version) const {
  const auto from = catalogue();
  const auto& known = authenticate(*from, caller);
  std::vector<protocol::Statistics> out;
  const auto add = [&](const ServedEndpoint& endpoint) {
    for (const auto& variant : endpoint.variants) {
      if (!version.empty() && variant.version_text != version && variant.plan.name != version) continue;
      const auto& counts = *variant.counts;
      protocol::Statistics one;
      one.model = endpoint.plan.name;
      one.version = variant.version_text;
      one.last_inference_ms = static_cast<std::uint64_t>(counts.last_us.load() / 1000);
      one.inference_count = counts.rows.load();
      one.execution_count = counts.calls.load();
      one.success = counts.success.read();
      one.fail = counts.fail.read();
      one.queue = counts.queue.read();
      one.input = counts.input.read();
      one.infer = counts.infer.read();
      one.output = counts.output.read();
      one.cache_hit = counts.cache_hit.read();
      one.cache_miss = counts.cache_miss.read();
      one.batches = counts.batches();
      one.memory_bytes = variant.held->model ? variant.held->model->resident_bytes() : 0;
      out.push_back(std::move(one));
    }
  };
  if (!model.empty())
    add(find(*from, known, model));
  else
    for (const auto place : known.endpoints) add(from->endpoints[place]);
  return out;
}

std::vector<protocol::IndexEntry> Host::index(const protocol::Caller& caller, bool only_ready) const {
  const auto from = catalogue();
  std::vector<protocol::IndexEntry> out;
  for (const auto place : authenticate(*from, caller).endpoints) {
    const auto& endpoint = from->endpoints[place];
    for (const auto& variant : endpoint.variants)
      out.push_back({endpoint.plan.name, variant.version_text, "READY",
                     variant.held->model ? "" : "asleep: the next request wakes it"});
    if (only_ready) continue;
    for (const auto& away : endpoint.away)
      out.push_back({endpoint.plan.name, std::to_string(away.version), "UNAVAILABLE", away.state});
    if (endpoint.plan.stopped) out.push_back({endpoint.plan.name, "", "UNAVAILABLE", "stopped"});
  }
  return out;
}

// Not unavailable: asking again would not help.
void Host::load(const protocol::Caller& caller, const std::string& model) {
  const auto from = catalogue();
  find(*from, authenticate(*from, caller), model);
  throw Error(Code::denied, "what is served is declared: use falaj deploy, or apply an Endpoint");
}

void Host::unload(const protocol::Caller& caller, const std::string& model) {
  const auto from = catalogue();
  find(*from, authenticate(*from, caller), model);
  throw Error(Code::denied, "what is served is declared: stop or delete the Endpoint");
}

}  // namespace falaj::serve
