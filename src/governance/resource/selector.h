// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::resource {

// Which labels a resource must have: "env=prod,team!=search,critical,!old". All of them must hold; "" takes everything.
class Selector {
 public:
  static Selector parse(std::string_view text);  // throws invalid
  bool accepts(const std::map<std::string, std::string>& labels) const;

 private:
  enum class Test { equals, differs, present, absent };
  struct Term {
    Test test;
    std::string key, value;
  };
  std::vector<Term> terms_;
};

}  // namespace falaj::resource
