// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "governance/vault/vault.h"
#include "lifecycle/jobs/life.h"
#include "lifecycle/jobs/spec.h"

namespace falaj::jobs {

using vault::Where;

// A job: what was asked for, which never changes, and its life.
struct Record {
  JobId id;
  Where where;
  std::string name, owner;  // owner as a principal: "user/acme/ada"
  std::map<std::string, std::string> labels;
  std::shared_ptr<const JobSpec> spec;
  std::string array;  // the id that its members share; "" = it is not of an array
  std::int64_t array_index = 0;
  std::int64_t submitted_us = 0;
  Life life;

  // As it is stored.
  std::int64_t transitions = 1;
  Digest digest;  // of the life

  std::string attempt() const { return attempt_name(id, life.epoch); }
  iam::Scope scope() const { return iam::Scope::of(where.tenant.str(), where.project.str(), "job", id.str()); }
};

}  // namespace falaj::jobs
