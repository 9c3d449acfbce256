// SPDX-License-Identifier: Apache-2.0
#include "storage/online/online_contract.h"

namespace falaj::online {

INSTANTIATE_TEST_SUITE_P(Engines, StoreContract,
                         testing::Combine(testing::ValuesIn(engines()),
                                          testing::Values(Protection::sealed, Protection::clear)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Protection::sealed ? "_sealed" : "_clear");
                         });

}  // namespace falaj::online
