// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct ZoneSpec {
  std::string residency;
  std::vector<std::string> backends;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::ZoneSpec> {
  using S = resource::ZoneSpec;
  static constexpr std::string_view name = "ZoneSpec";
  static Fields fields() {
    return {
        field("residency", &S::residency, "Whose law holds for its bytes: a country or region such as AE, EU or DE-BE.")
            .required()
            .length(2, 32),
        field("backends", &S::backends, "Names of the stores that keep its bytes.")
            .length(0, 16)
            .text({is_name, kNameRule})};
  }
};

namespace falaj::resource {

Kind zone_kind(iam::Directory& directory) {
  KindOf<ZoneSpec> kind{"Zone", "zones", "A place whose law holds for the bytes in it.", {.platform = true}, {},
                        {},     {}};
  kind.changed = [&directory](const ChangeOf<ZoneSpec>& c) {
    if (c.after)
      directory.put(c.writer, iam::Zone{ZoneName::parse(c.metadata.name), c.after->residency, c.after->backends});
    else
      directory.remove<iam::Zone>(c.writer, c.metadata.name);
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
