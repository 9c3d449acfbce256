// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "lifecycle/data/checks.h"
#include "lifecycle/features/definitions.h"
#include "lifecycle/features/online_tables.h"
#include "storage/online/store.h"

namespace falaj::features {

using lookup::FeatureCell;
using lookup::FeatureSink;

// By the name of the key's column, or of a field of the request, one value for each entity.
struct Entities {
  std::vector<std::pair<std::string, std::vector<lookup::Value>>> columns;
  std::size_t size() const { return columns.empty() ? 0 : columns.front().second.size(); }
};

// What is online, and reading it. Thread-safe. A meaning of a view has a space of its own in the store for every
// generation, and only the last whole one is read.
class OnlineViews {
 public:
  // All of them outlive this. Everything that is kept is sealed under keys that come of `key`.
  OnlineViews(sql::Database& database, Definitions& definitions, online::Store& store, const crypto::Key& key,
              const sys::Clock& clock);

  // As of now unless told. Errors: invalid (a key), conflict (before the last write, or nothing is online).
  // Returns as of when it was.
  std::int64_t get(const Selection& wanted, const Entities& entities, std::optional<std::int64_t> as_of_us,
                   FeatureSink& into);

  // Sees to it that the store is the one the views were brought into. When it is not, because it was lost or the
  // database is a restored one, every view is to be brought there again; returns how many those are.
  std::size_t recognise_store(const sql::Act& act);
  void need_mark(const sql::Act& act);  // by which it is recognised; before something is brought there

  std::optional<OnlineView> find(const Digest& meaning) const;
  std::vector<OnlineView> list(const std::optional<Where>& where) const;
  // Writes what `change` makes of it, durable; `change` may be called more than once.
  OnlineView change(const sql::Act& act, const Digest& meaning,
                    const std::function<OnlineView(std::optional<OnlineView>)>& change);
  void forget(const sql::Act& act, const Digest& meaning);
  std::shared_ptr<const online::Space> space(const Digest& meaning, std::int64_t generation);
  // What a program elsewhere needs to read the rows of a generation by itself, and of no other. Marks it as whole,
  // which it is until it is erased. Throws conflict when it is not the one that is read.
  online::Space::Secret share(const Digest& meaning, std::int64_t generation);
  bool is_shared(const Digest& meaning, std::int64_t generation) const;
  void erase_generation(const Digest& meaning, std::int64_t generation);

  // Meanings into which pushes to a dataset go, with the spaces of all generations that are, or are about to be, read.
  struct Live {
    std::shared_ptr<const Definition> definition;
    std::vector<std::shared_ptr<const online::Space>> spaces;
  };
  std::vector<Live> live(const Where& where, const std::string& dataset);

  // What it is, as its view is declared today or was at its revision; null when nothing says that any more: the view
  // was deleted, or what it is made of has changed. Then it cannot be computed, and is not read.
  std::shared_ptr<const Definition> definition_of(const OnlineView& view);

  // What a view's expectations found, last first.
  std::vector<data::CheckResult> checks(const Where& where, const std::string& view, std::int64_t limit) const;
  void forget_examples(const Where& where, const sql::Act& act);  // the values that they showed

  Definitions& definitions() { return definitions_; }
  online::Store& store() { return store_; }

 private:
  std::int64_t generation(const Selected& wanted) const;  // that is read; throws conflict
  std::int64_t tell(const Selection& wanted, const std::vector<std::int64_t>& generations, const Entities& entities,
                    std::optional<std::int64_t> as_of_us, FeatureSink& into);
  void mark_store(const sql::Act& act);
  std::shared_ptr<const online::Space> make_space(BytesView name) const;
  std::vector<Bytes> keys_of(const Definition& definition, const Entities& entities) const;

  sql::Database& database_;
  Definitions& definitions_;
  online::Store& store_;
  const crypto::Key address_key_, seal_key_;
  const sys::Clock& clock_;

  Mutex marking_;  // a generation is marked, or its mark erased; before mu_

  mutable Mutex mu_;                                    // guards everything below
  std::map<Digest, OnlineView> views_ GUARDED_BY(mu_);  // as the database has them
  std::map<std::pair<Digest, std::int64_t>, std::shared_ptr<const online::Space>> spaces_ GUARDED_BY(mu_);
  std::set<std::pair<Digest, std::int64_t>> shared_ GUARDED_BY(mu_);  // since this process started
};

}  // namespace falaj::features
