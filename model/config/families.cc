#include "model/config/families.h"

namespace tlm {

std::span<const std::span<const Family>> FamilyGroups() {
  static const std::span<const Family> kGroups[] = {CourseFamilies(), Gpt2Families(),
                                                    LlamaFamilies()};
  return kGroups;
}

const Family* FindFamily(std::string_view model_type) {
  for (const std::span<const Family> group : FamilyGroups()) {
    for (const Family& family : group) {
      if (family.model_type == model_type) return &family;
    }
  }
  return nullptr;
}

}  // namespace tlm
