// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "compute/infer/batch.h"
#include "compute/protocol/inference.h"
#include "compute/serve/catalogue.h"
#include "compute/serve/predictions.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// A request on its way: what it needs to stay alive, what to count, and whom to tell.
class Inquiry : public infer::Request {
 public:
  Inquiry(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint, const ServedVariant& variant,
          const sys::Clock& clock);
  ~Inquiry() override;

  void answer(const infer::Ran& ran) noexcept final;
  void refuse(const Error& why) noexcept final;

  // Gives the prediction a name, and has it written down when it falls into the share of those that are.
  void give_name(Predictions& log, std::string key);

  // Has what the model says kept in the variant's cache.
  void keep_answer_as(std::string key) { cache_key_ = std::move(key); }

  // The deadline of a request that may take so long; 0: as its model says.
  void within(std::int64_t timeout_us);
  sys::Micros began() const { return began_; }

 protected:
  virtual void tell(const infer::Ran& ran) = 0;
  virtual void tell(const Error& why) = 0;
  void name_prediction(std::string& out) const;  // "": it has no name

  const std::shared_ptr<const Catalogue> from_;  // holds the two below
  const ServedEndpoint& endpoint_;
  const ServedVariant& variant_;
  std::vector<std::int64_t> feature_times_;  // where features were looked up: as protocol::Predict has them

 private:
  void keep(const infer::Ran& ran);

  const sys::Clock& clock_;
  const sys::Micros began_;
  Predictions* log_ = nullptr;
  IdBits id_;
  std::string key_, cache_key_;
};

// Makes the request of tensors; throws invalid when they do not fit the model.
std::unique_ptr<Inquiry> ask_tensors(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint,
                                     const ServedVariant& variant, const sys::Clock& clock, protocol::Ask ask,
                                     protocol::Done done);
// And of rows.
std::unique_ptr<Inquiry> ask_rows(std::shared_ptr<const Catalogue> from, const ServedEndpoint& endpoint,
                                  const ServedVariant& variant, const sys::Clock& clock, const protocol::Predict& ask,
                                  std::function<void(std::variant<protocol::Predicted, Error>)> done);

}  // namespace falaj::serve
