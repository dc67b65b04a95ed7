// A part of the machine whose settings Derate may write: what journals, leases, the audit log, the
// guard and the restorers are about.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

namespace derate {

struct DomainId {
  std::string kind;  // "gpu"
  std::string name;  // of a GPU its UUID

  auto operator<=>(const DomainId&) const = default;
};

inline constexpr const char* kGpuKind = "gpu";
inline DomainId gpu_domain(std::string uuid) { return {kGpuKind, std::move(uuid)}; }

// "gpu:GPU-...", and back. A text without a kind is a GPU's UUID.
std::string to_string(const DomainId& domain);
DomainId parse_domain(std::string_view text);

// As files, sentences and the guard name it: a GPU by its UUID, any other as "kind:name".
// parse_domain() reads it.
std::string short_name(const DomainId& domain);

}  // namespace derate
