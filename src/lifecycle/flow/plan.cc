// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::flow {
namespace {

using expr::Type;

// Also what a run itself is, for those who name things by it.
constexpr std::string_view kOfRun[] = {"id", "pipeline", "number", "started"};

expr::Type parameter_type(std::string_view type) {
  return type == "int"       ? Type::int64
         : type == "number"  ? Type::float64
         : type == "boolean" ? Type::boolean
                             : Type::text;
}

json::value example_of(Type type) {
  switch (type) {
    case Type::boolean:
      return true;
    case Type::int64:
      return std::int64_t{1};
    case Type::float64:
      return 0.5;
    default:
      return "example";
  }
}

bool is_of(const json::value& value, Type type) {
  switch (type) {
    case Type::boolean:
      return value.is_bool();
    case Type::int64:
      return value.is_int64();
    case Type::float64:
      return value.is_number();
    default:
      return value.is_string();
  }
}

// Whether a fault says that a value is of another kind than is wanted, as shape does: not which value it is.
bool is_wrong_kind(std::string_view what) {
  for (const auto* kind : {", not text", ", not a number", ", not true or false", ", not a list", ", not a map"})
    if (what.ends_with(kind)) return true;
  return false;
}

std::string known_names(const std::vector<std::string>& names) {
  return names.empty() ? "there are none" : fmt::format("there are: {}", fmt::join(names, ", "));
}

std::vector<std::string> steps_in(const StepSpec& step, const std::string& at, Faults& faults) {
  std::vector<std::string> out = step.after;
  const EachReference note = [&](const Reference& reference, const std::string&) {
    if (reference.root() == "steps" && reference.path.size() > 1) out.push_back(reference.path[1]);
  };
  if (const auto what = doing(step)) each_reference(*what->body, at, note, faults);
  each_reference(json::value(step.when), at, note, faults);
  return out;
}

class Checker {
 public:
  Checker(const PipelineSpec& spec, const CheckTraining& training, Faults& faults)
      : spec_(spec), training_(training), faults_(faults) {}

  void check() {
    for (const auto& entry : spec_.parameters) parameter(entry.first, entry.second);
    std::set<std::string> seen;
    for (std::size_t i = 0; i < spec_.steps.size(); ++i) {
      names_.push_back(spec_.steps[i].name);
      if (!seen.insert(spec_.steps[i].name).second)
        fault(at(i) + ".name", fmt::format("'{}' is there twice", spec_.steps[i].name));
    }
    std::size_t instances = 0;
    for (std::size_t i = 0; i < spec_.steps.size(); ++i) {
      step(spec_.steps[i], at(i));
      std::size_t combinations = 1;
      for (const auto& axis : spec_.steps[i].matrix) combinations *= std::max<std::size_t>(axis.second.size(), 1);
      instances += std::min(combinations, kInstancesMax + 1);
    }
    if (instances > kInstancesMax)
      fault("spec.steps", fmt::format("are {} with all combinations; at most {}", instances, kInstancesMax));
    cycles();
    for (std::size_t i = 0; i < spec_.triggers.size(); ++i)
      trigger(spec_.triggers[i], fmt::format("spec.triggers[{}]", i));
  }

 private:
  static std::string at(std::size_t step) { return fmt::format("spec.steps[{}]", step); }
  void fault(std::string where, std::string what) { faults_.push_back({std::move(where), std::move(what)}); }

  void parameter(const std::string& name, const ParameterSpec& parameter) {
    const auto where = "spec.parameters." + name.substr(0, 64);
    if (!is_word(name)) fault(where, fmt::format("must be {}", kWordRule));
    if (!parameter.fallback.is_null() && !is_of(parameter.fallback, parameter_type(parameter.type)))
      fault(where + ".default", fmt::format("must be of type {}", parameter.type));
  }

  void step(const StepSpec& step, const std::string& at) {
    for (const auto& [axis, values] : step.matrix) {
      if (!is_word(axis)) fault(at + ".matrix." + axis.substr(0, 64), fmt::format("must be {}", kWordRule));
      if (values.empty()) fault(at + ".matrix." + axis, "needs at least one value");
      for (const auto& value : values)
        if (value.is_array() || value.is_object() || value.is_null())
          fault(at + ".matrix." + axis, "values are texts, numbers, true or false");
    }
    for (std::size_t i = 0; i < step.after.size(); ++i)
      if (std::find(names_.begin(), names_.end(), step.after[i]) == names_.end())
        fault(fmt::format("{}.after[{}]", at, i), no_step(step.after[i]));
    const auto what = doing(step);
    if (!what)
      return fault(at,
                   "must do one thing: run, test, train, sql, trainSet, ingest, check, gate, promote, deploy or "
                   "approve");
    const auto before = faults_.size();
    std::vector<std::string> invented;  // places whose values are not known yet
    const auto body_at = fmt::format("{}.{}", at, what->kind);
    each_reference(
        *what->body, body_at,
        [&](const Reference& reference, const std::string& path) {
          try {
            resolve(step, reference);
            if (!is_given(step, reference)) invented.push_back(path);
          } catch (const Error& e) {
            fault(path, e.what());
          }
        },
        faults_);
    if (!step.when.empty()) {
      try {
        check_condition(step.when, [&](const Reference& reference) { return resolve(step, reference).type; });
      } catch (const Error& e) {
        fault(at + ".when", e.what());
      }
    }
    if (faults_.size() > before) return;
    Faults of_body;
    const auto filled = in_words(
        what->kind, fill(*what->body, [&](const Reference& reference) { return resolve(step, reference).example; }));
    check_body(what->kind, filled, body_at, training_, of_body);
    // Of what is not known yet the type is, and nothing else.
    for (auto& fault : of_body) {
      const bool later = std::any_of(invented.begin(), invented.end(),
                                     [&](const auto& path) { return fault.where.starts_with(path); });
      if (!later || is_wrong_kind(fault.what)) faults_.push_back(std::move(fault));
    }
    if (step.matrix.empty() || what->kind != "approve") return;
    fault(at + ".matrix", "one approval is enough: it does not go with approve");
  }

  struct Resolved {
    Type type = Type::text;
    json::value example;
  };
  // Throws invalid when there is no such thing.
  Resolved resolve(const StepSpec& step, const Reference& reference) {
    const auto& path = reference.path;
    if (path[0] == "params" && path.size() == 2) {
      const auto found = spec_.parameters.find(path[1]);
      if (found == spec_.parameters.end()) {
        std::vector<std::string> names;
        for (const auto& entry : spec_.parameters) names.push_back(entry.first);
        throw Error(Code::invalid, fmt::format("no parameter '{}'; {}", path[1], known_names(names)));
      }
      const auto type = parameter_type(found->second.type);
      return {type, found->second.fallback.is_null() ? example_of(type) : found->second.fallback};
    }
    if (path[0] == "matrix" && path.size() == 2) {
      const auto found = step.matrix.find(path[1]);
      if (found == step.matrix.end() || found->second.empty())
        throw Error(Code::invalid, fmt::format("the step has no matrix.{}", path[1]));
      const auto& value = found->second.front();
      const auto type = value.is_bool()     ? Type::boolean
                        : value.is_int64()  ? Type::int64
                        : value.is_number() ? Type::float64
                                            : Type::text;
      return {type, value};
    }
    if (path[0] == "run" && path.size() == 2 &&
        std::find(std::begin(kOfRun), std::end(kOfRun), path[1]) != std::end(kOfRun))
      return path[1] == "number" ? Resolved{Type::int64, std::int64_t{1}} : Resolved{Type::text, "example"};
    if (path[0] == "steps" && path.size() >= 4 && path[2] == "outputs") return output(step, path);
    throw Error(Code::invalid, fmt::format("'{}' is none of params.NAME, matrix.NAME, steps.NAME.outputs.NAME, run.id, "
                                           "run.number, run.pipeline and run.started",
                                           reference.text()));
  }

  Resolved output(const StepSpec& step, const std::vector<std::string>& path) {
    const auto found =
        std::find_if(spec_.steps.begin(), spec_.steps.end(), [&](const auto& other) { return other.name == path[1]; });
    if (found == spec_.steps.end()) throw Error(Code::invalid, no_step(path[1]));
    if (found->name == step.name) throw Error(Code::invalid, "a step cannot refer to its own outputs");
    const auto what = doing(*found);
    if (!what) throw Error(Code::invalid, fmt::format("step '{}' does nothing that has outputs", path[1]));
    const auto type = output_type(what->kind, {path.begin() + 3, path.end()});
    if (!type)
      throw Error(Code::invalid, fmt::format("a {} step has no output '{}'; there are: {}", what->kind, path[3],
                                             outputs_of(what->kind)));
    const auto example = example_of(*type);
    if (!found->matrix.empty()) return {*type, json::array{example}};
    return {*type, example};
  }

  // Whether what a reference stands for is known before a run, so that the body can be held to it.
  bool is_given(const StepSpec&, const Reference& reference) const {
    if (reference.root() == "matrix") return true;
    if (reference.root() != "params") return false;
    return !spec_.parameters.at(reference.path[1]).fallback.is_null();
  }

  std::string no_step(const std::string& name) const {
    return fmt::format("no step '{}'; {}", name, known_names(names_));
  }

  void cycles() {
    std::map<std::string, std::vector<std::string>> before;
    Faults ignored;  // said already
    for (const auto& step : spec_.steps) before[step.name] = steps_in(step, "", ignored);
    // Takes away what depends on nothing that is left; what stays is in a circle, or behind one.
    for (bool went = true; went;) {
      went = false;
      for (auto it = before.begin(); it != before.end();) {
        const bool free =
            std::none_of(it->second.begin(), it->second.end(), [&](const auto& name) { return before.contains(name); });
        went |= free;
        it = free ? before.erase(it) : std::next(it);
      }
    }
    if (before.empty()) return;
    // Along the first that is left until one comes again.
    std::vector<std::string> way{before.begin()->first};
    for (;;) {
      const auto& of = before[way.back()];
      const auto next = std::find_if(of.begin(), of.end(), [&](const auto& name) { return before.contains(name); });
      const auto seen = std::find(way.begin(), way.end(), *next);
      if (seen != way.end()) {
        std::vector<std::string> circle(seen, way.end());
        circle.push_back(*next);
        return fault("spec.steps", fmt::format("wait for each other in a circle: {}", fmt::join(circle, " after ")));
      }
      way.push_back(*next);
    }
  }

  void trigger(const TriggerSpec& trigger, const std::string& at) {
    if (trigger.cron.has_value() + !trigger.dataset.empty() + trigger.promotion.has_value() + trigger.push.has_value() +
            trigger.alert.has_value() !=
        1)
      fault(at, "must be one of cron, dataset, promotion, push and alert");
    if (trigger.alert &&
        std::find(spec_.blocked_by.begin(), spec_.blocked_by.end(), trigger.alert->rule) != spec_.blocked_by.end())
      fault(at + ".alert.rule", fmt::format("'{}' cannot both begin runs and forbid them", trigger.alert->rule));
    for (const auto& [name, value] : trigger.parameters) {
      const auto path = fmt::format("{}.parameters.{}", at, name.substr(0, 64));
      const auto found = spec_.parameters.find(name);
      if (found == spec_.parameters.end()) {
        fault(path, "the pipeline has no such parameter");
        continue;
      }
      bool refers = false;
      each_reference(
          value, path,
          [&](const Reference& reference, const std::string& where) {
            refers = true;
            if (reference.root() != "trigger" || reference.path.size() != 2)
              fault(where, fmt::format("'{}': only trigger.NAME is known when a run begins", reference.text()));
          },
          faults_);
      if (!refers && !is_of(value, parameter_type(found->second.type)))
        fault(path, fmt::format("must be of type {}", found->second.type));
    }
    for (const auto& [name, parameter] : spec_.parameters)
      if (parameter.fallback.is_null() && !trigger.parameters.contains(name))
        fault(at + ".parameters", fmt::format("'{}' has no default, so it must be said here", name));
  }

  const PipelineSpec& spec_;
  const CheckTraining& training_;
  Faults& faults_;
  std::vector<std::string> names_;
};

std::vector<std::map<std::string, json::value>> combinations(const StepSpec& step) {
  std::vector<std::map<std::string, json::value>> out{{}};
  for (const auto& [axis, values] : step.matrix) {
    std::vector<std::map<std::string, json::value>> more;
    for (const auto& one : out)
      for (const auto& value : values) {
        more.push_back(one);
        more.back()[axis] = value;
      }
    out = std::move(more);
  }
  return out;
}

// A text as a value of the type, as far as it is one.
json::value as(const json::value& given, Type type) {
  const auto* text = given.if_string();
  if (!text || type == Type::text) return given;
  if (type == Type::boolean && (*text == "true" || *text == "false")) return *text == "true";
  if (type == Type::int64)
    if (const auto number = parse_int(*text)) return *number;
  if (type == Type::float64) {
    char* end = nullptr;
    const double number = std::strtod(text->c_str(), &end);
    if (!text->empty() && *end == '\0' && std::isfinite(number)) return number;
  }
  return given;
}

}  // namespace

const Instance* Plan::find(std::string_view id) const {
  const auto found = std::find_if(instances.begin(), instances.end(), [&](const auto& one) { return one.id == id; });
  return found == instances.end() ? nullptr : &*found;
}

std::size_t Plan::step_named(std::string_view name) const {
  return static_cast<std::size_t>(
      std::find_if(spec.steps.begin(), spec.steps.end(), [&](const auto& step) { return step.name == name; }) -
      spec.steps.begin());
}

void check(const PipelineSpec& spec, const CheckTraining& training, Faults& faults) {
  Checker(spec, training, faults).check();
}

Plan plan_of(const PipelineSpec& spec) {
  Plan out{spec, {}};
  std::map<std::string, std::vector<std::size_t>> made;  // instances by step
  std::vector<std::vector<std::string>> before;
  Faults none;
  for (const auto& step : spec.steps) before.push_back(steps_in(step, "", none));
  while (made.size() < spec.steps.size()) {
    const auto had = made.size();
    for (std::size_t i = 0; i < spec.steps.size(); ++i) {
      const auto& step = spec.steps[i];
      if (made.contains(step.name) ||
          !std::all_of(before[i].begin(), before[i].end(), [&](const auto& name) { return made.contains(name); }))
        continue;
      std::set<std::size_t> needs;
      for (const auto& name : before[i]) needs.insert(made[name].begin(), made[name].end());
      std::size_t number = 0;
      auto& own = made[step.name];
      for (auto& matrix : combinations(step)) {
        own.push_back(out.instances.size());
        out.instances.push_back({step.matrix.empty() ? step.name : fmt::format("{}.{}", step.name, ++number),
                                 i,
                                 std::move(matrix),
                                 {needs.begin(), needs.end()}});
      }
    }
    CHECK(made.size() > had, "a pipeline in a circle was checked");
  }
  return out;
}

json::object parameters_of(const PipelineSpec& spec, const json::object& given) {
  Faults faults;
  json::object out;
  for (const auto& member : given)
    if (!spec.parameters.contains(std::string(member.key()))) {
      std::vector<std::string> names;
      for (const auto& entry : spec.parameters) names.push_back(entry.first);
      faults.push_back({fmt::format("parameters.{}", std::string_view(member.key()).substr(0, 64)),
                        fmt::format("no such parameter; {}", known_names(names))});
    }
  for (const auto& [name, parameter] : spec.parameters) {
    const auto type = parameter_type(parameter.type);
    const auto* said = given.if_contains(name);
    const auto value = said ? as(*said, type) : parameter.fallback;
    if (value.is_null())
      faults.push_back({"parameters." + name, "required, but missing"});
    else if (!is_of(value, type))
      faults.push_back({"parameters." + name, fmt::format("must be of type {}, not {}", parameter.type,
                                                          json::serialize(value).substr(0, 80))});
    out[name] = value;
  }
  refuse_if_any("pipeline", std::move(faults));
  return out;
}

expr::Type type_of(const Plan& plan, const Instance& instance, const Reference& reference) {
  const auto& path = reference.path;
  if (path[0] == "params") return parameter_type(plan.spec.parameters.at(path[1]).type);
  if (path[0] == "run") return path[1] == "number" ? Type::int64 : Type::text;
  if (path[0] == "matrix") {
    const auto& value = instance.matrix.at(path[1]);
    return value.is_bool()     ? Type::boolean
           : value.is_int64()  ? Type::int64
           : value.is_number() ? Type::float64
                               : Type::text;
  }
  const auto step = plan.step_named(path[1]);
  CHECK(step < plan.spec.steps.size(), "a reference was checked");
  return *output_type(doing(plan.spec.steps[step])->kind, {path.begin() + 3, path.end()});
}

}  // namespace falaj::flow
