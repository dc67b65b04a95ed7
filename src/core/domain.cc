#include "core/domain.h"

namespace derate {

std::string to_string(const DomainId& domain) { return domain.kind + ":" + domain.name; }

DomainId parse_domain(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return gpu_domain(std::string(text));
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

std::string short_name(const DomainId& domain) {
  return domain.kind == kGpuKind ? domain.name : to_string(domain);
}

}  // namespace derate
