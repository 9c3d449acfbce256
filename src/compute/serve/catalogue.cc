// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/catalogue.h"

#include <algorithm>
#include <new>
#include <set>

#include <fmt/format.h>

#include "compute/serve/log_lines.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

infer::BatchRule rule_of(const traffic::Batching& batching) {
  infer::BatchRule rule;
  rule.rows_max = static_cast<std::uint32_t>(batching.rows_max);
  rule.wait_max = sys::Micros(batching.wait_us_max);
  rule.queue_rows_max = static_cast<std::uint32_t>(batching.queue_rows_max);
  rule.priorities = kPriorities;
  rule.deadline_default = sys::Micros(batching.timeout_us);
  return rule;
}

const ServedEndpoint* find_endpoint(const Catalogue* in, const traffic::Endpoint& wanted) {
  if (!in) return nullptr;
  for (const auto& endpoint : in->endpoints)
    if (endpoint.plan.tenant == wanted.tenant && endpoint.plan.project == wanted.project &&
        endpoint.plan.name == wanted.name)
      return &endpoint;
  return nullptr;
}

const ServedVariant* find_variant(const ServedEndpoint* in, const std::string& name) {
  if (!in) return nullptr;
  const auto same = [&](const auto& v) { return v.plan.name == name; };
  const auto found = std::find_if(in->variants.begin(), in->variants.end(), same);
  return found == in->variants.end() ? nullptr : &*found;
}

void add_names(Catalogue& to, std::uint32_t place) {
  auto& endpoint = to.endpoints[place];
  const auto& plan = endpoint.plan;
  to.by_name.emplace(plan.name, place);
  to.by_name.emplace(fmt::format("{}.{}", plan.project, plan.name), place);
  to.by_name.emplace(endpoint.full_name, place);
}

// All but the model, which goes when its last request has.
std::shared_ptr<const Held> asleep_of(const std::shared_ptr<const Held>& held) {
  if (!held->model) return held;
  auto out = std::make_shared<Held>(*held);
  out->model.reset();
  return out;
}

}  // namespace

void revoke(Catalogue& catalogue, const std::vector<traffic::Revoked>& what) {
  for (const auto& one : what) {
    const auto found = catalogue.callers.find(one.credential);
    if (found == catalogue.callers.end()) continue;
    if (one.endpoint.empty()) {
      catalogue.callers.erase(found);
      continue;
    }
    const auto is_it = [&](std::uint32_t place) { return catalogue.endpoints[place].full_name == one.endpoint; };
    std::erase_if(found->second.endpoints, is_it);
    std::erase_if(found->second.explains, is_it);
  }
}

std::string name_of(const ServedEndpoint& endpoint, const ServedVariant& variant) {
  return endpoint.full_name + "/" + variant.plan.name;
}

// Calls it with zeros where its sizes allow: what a first call sets up is then there before a request is, and the
// second tells whether calls take long.
void Loader::warm_up(Held& held) const {
  std::vector<graph::Tensor> zeros;
  std::vector<std::vector<std::string_view>> texts;
  for (const auto& port : held.inputs) {
    graph::Sizes sizes;
    for (const auto& dimension : port.shape)
      sizes.push_back(std::holds_alternative<std::int64_t>(dimension) ? std::get<std::int64_t>(dimension) : 1);
    if (graph::count_of(sizes) > (std::size_t{1} << 24)) return;
    zeros.push_back(graph::Tensor::empty(port.element, std::move(sizes)));
    texts.emplace_back(zeros.back().texts.begin(), zeros.back().texts.end());
  }
  std::vector<infer::TensorView> views;
  for (std::size_t i = 0; i < zeros.size(); ++i) views.push_back(infer::TensorView::of(zeros[i], texts[i]));
  try {
    held.model->check(views);
    held.model->run(views);
    const auto began = clock_.now();
    held.model->run(views);
    held.call_us = static_cast<double>((clock_.now() - began).count());
  } catch (const std::exception& e) {
    log::debug("warm_up_failed", {{"model", held.sha256}, {"why", e.what()}});  // zeros may be nothing to it
  }
}

std::shared_ptr<const Held> Loader::hold(const std::string& sha256, const Source& source) {
  if (auto there = held_[sha256].lock()) return there;
  if (const auto bad = source.quarantined.find(sha256); bad != source.quarantined.end())
    throw Error(Code::unavailable, bad->second);
  if (const auto away = source.unfetched.find(sha256); away != source.unfetched.end())
    throw Error(Code::unavailable, away->second);
  auto held = std::make_shared<Held>();
  held->sha256 = sha256;
  const auto load = [&] {
    const auto bytes = source.bytes(sha256);  // may be more than there is memory for
    held->model = infer::Model::load(runtime_, bytes, options_);
    held->inputs = held->model->inputs();
    held->outputs = held->model->outputs();
    held->rows_first = held->model->rows_first();
    warm_up(*held);
  };
  around_loading ? around_loading(sha256, load) : load();
  held->since_us = clock_.wall().count();
  for (std::size_t i = 0; i < held->inputs.size(); ++i)
    held->input_of[held->inputs[i].name] = static_cast<std::uint16_t>(i);
  for (std::size_t i = 0; i < held->outputs.size(); ++i)
    held->output_of[held->outputs[i].name] = static_cast<std::uint16_t>(i);
  held_[sha256] = held;
  return held;
}

void Loader::lay_out_log(ServedEndpoint& endpoint) {
  if (!endpoint.plan.log) return;
  auto layout = std::make_shared<LogLayout>(layout_of(endpoint));
  if (layout->problem.empty()) {
    endpoint.log = std::move(layout);
    return;
  }
  log::warn("predictions_not_logged", {{"endpoint", endpoint.plan.name}, {"why", layout->problem}});
  for (auto& state : states_)
    if (state.tenant == endpoint.plan.tenant && state.project == endpoint.plan.project &&
        state.endpoint == endpoint.plan.name && state.reason.empty())
      state.reason = layout->problem;
}

// What is to be hidden from a log must not be missed here by the same slip of the pen.
void Loader::watch(ServedEndpoint& endpoint, const ServedEndpoint* before) const {
  for (auto& variant : endpoint.variants) {
    if (!endpoint.plan.compares || variant.plan.shadow) continue;
    const auto* same = find_variant(before, variant.plan.name);
    const bool goes_on = same && same->slot == variant.slot && same->compared;
    variant.compared = goes_on ? same->compared : std::make_shared<ComparedOutputs>(compared_cells(endpoint, variant));
  }
  if (!endpoint.plan.watch || (endpoint.plan.log && !endpoint.log)) return;
  const auto seed = static_cast<std::uint64_t>(clock_.wall().count());
  for (auto& variant : endpoint.variants) {
    auto cells = watch_cells(endpoint, variant);
    const auto* same = find_variant(before, variant.plan.name);
    const bool goes_on = same && same->slot == variant.slot && same->watched && same->watched->cells() == cells &&
                         same->watched->how() == *endpoint.plan.watch;
    variant.watched =
        goes_on ? same->watched : std::make_shared<WatchStream>(std::move(cells), *endpoint.plan.watch, seed);
  }
}

void Loader::find_features(ServedEndpoint& endpoint, const ServedEndpoint* before, const FeatureStore& store) {
  const auto& plan = endpoint.plan;
  if (!plan.features) return;
  auto counts = before && before->features ? before->features->counts() : std::make_shared<FeatureCounts>();
  endpoint.features = std::make_shared<const EndpointFeatures>(*plan.features, store, std::move(counts));
  if (endpoint.features->problem().empty()) return;
  log::warn("features_not_readable", {{"endpoint", plan.name}, {"why", endpoint.features->problem()}});
  for (auto& state : states_)
    if (state.tenant == plan.tenant && state.project == plan.project && state.endpoint == plan.name &&
        state.reason.empty())
      state.reason = "features: " + endpoint.features->problem();
}

// What the variant is answered by: its model, asleep or awake, or the one before where it cannot be loaded. `state`
// says what came of it.
std::shared_ptr<const Held> Loader::hold_or_keep(const ServedEndpoint& endpoint, ServedVariant& served,
                                                 const ServedVariant* same, const Source& source, VariantState& state) {
  const auto sha256 = served.plan.sha256;
  const auto failed = [&](const char* why) {
    state.state = source.quarantined.contains(sha256) ? "quarantined"
                  : source.unfetched.contains(sha256) ? "unfetched"
                                                      : "failed";
    state.reason = why;
    log::warn("model_not_loaded", {{"endpoint", endpoint.plan.name}, {"variant", served.plan.name}, {"why", why}});
    // Better the old one than none, but not one that sleeps: waking it is what failed.
    if (!same || !same->held->model || source.quarantined.contains(same->plan.sha256))
      return std::shared_ptr<const Held>();
    served.plan.version = same->plan.version;
    served.plan.sha256 = same->plan.sha256;
    return same->held;
  };
  try {
    const bool sleeps = same && same->plan.sha256 == sha256 && source.asleep.contains(name_of(endpoint, served));
    auto held = sleeps ? asleep_of(same->held) : hold(sha256, source);
    state.state = sleeps ? "asleep" : "ready";
    return held;
  } catch (const std::bad_alloc&) {
    return failed("it needs more memory than models may take on this server");
  } catch (const std::exception& e) {
    return failed(e.what());
  }
}

std::shared_ptr<Catalogue> Loader::make(const traffic::Plan& plan, const Catalogue* before, const Source& source) {
  auto made = std::make_shared<Catalogue>();
  made->fingerprint = traffic::fingerprint(plan);
  states_.clear();
  for (const auto& planned : plan.endpoints) {
    ServedEndpoint endpoint;
    endpoint.plan = planned;
    endpoint.full_name = traffic::full_name(planned);
    const auto* was = find_endpoint(before, planned);
    for (const auto& variant : planned.variants) {
      if (planned.stopped) break;
      const auto* same = find_variant(was, variant.name);
      ServedVariant served;
      served.plan = variant;
      VariantState state{planned.tenant, planned.project, planned.name, variant.name, variant.version, "", ""};
      served.held = hold_or_keep(endpoint, served, same, source, state);
      if (state.state != "ready" && state.state != "asleep")
        endpoint.away.push_back({variant.name, variant.version, state.state});
      states_.push_back(std::move(state));
      if (!served.held) continue;
      served.rule = rule_of(planned.batching);
      served.name_ending = fmt::format(":{}:{}:{}", served.plan.name, served.plan.version, planned.revision);
      served.version_text = std::to_string(served.plan.version);
      served.target_p99 = infer::Micros(planned.batching.target_p99_us);
      served.instances_max = static_cast<std::uint32_t>(planned.batching.instances_max);
      const bool goes_on = same && same->plan.sha256 == served.plan.sha256 && same->plan.version == served.plan.version;
      served.counts = goes_on ? same->counts : std::make_shared<Counts>();
      served.slot = goes_on ? same->slot : next_slot_++;
      if (const auto bytes = static_cast<std::size_t>(planned.batching.cache_bytes); bytes > 0)
        served.cache = goes_on && same->cache && same->cache->bytes_max() == bytes
                           ? same->cache
                           : std::make_shared<AnswerCache>(bytes);
      endpoint.weights.push_back(served.plan);
      endpoint.variants.push_back(std::move(served));
    }
    find_features(endpoint, was, source.features);
    lay_out_log(endpoint);
    watch(endpoint, was);
    made->endpoints.push_back(std::move(endpoint));
    add_names(*made, static_cast<std::uint32_t>(made->endpoints.size() - 1));
  }
  for (const auto& caller : plan.callers) {
    KnownCaller known{Digest::parse(caller.secret_hash), caller.expires_us, {}, {}};
    for (const auto place : caller.endpoints)
      if (place >= 0 && static_cast<std::size_t>(place) < made->endpoints.size())
        known.endpoints.push_back(static_cast<std::uint32_t>(place));
    for (const auto place : caller.explains)
      if (place >= 0 && static_cast<std::size_t>(place) < made->endpoints.size())
        known.explains.push_back(static_cast<std::uint32_t>(place));
    made->callers.emplace(caller.credential, std::move(known));
  }
  std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
  return made;
}

}  // namespace falaj::serve
