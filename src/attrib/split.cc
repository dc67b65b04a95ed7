#include "attrib/split.h"

#include <fmt/format.h>

namespace derate {
namespace {

// Everyone who holds a context draws the same.
class Equal final : public SplitMethod {
 public:
  explicit Equal(const BoardFacts& board) : board_(board) {}

  PowerEstimate step(const AttribTick& tick) override {
    PowerEstimate out{.base = board_.base.value_or(Watts(0)),
                      .context = board_.context.value_or(Watts(0))};
    for (const TenantTick& tenant : tick.tenants)
      out.tenants.push_back({.dynamic = Watts(tenant.context ? 1 : 0)});
    return out;
  }

 private:
  BoardFacts board_;
};

template <class T>
std::unique_ptr<SplitMethod> make(const BoardFacts& board) {
  return std::make_unique<T>(board);
}

constexpr SplitMethodInfo kMethods[] = {
    {"equal", "the same for everyone who holds a context", false, make<Equal>},
};

}  // namespace

std::span<const SplitMethodInfo> split_methods() { return kMethods; }

Result<const SplitMethodInfo*> find_split_method(std::string_view name) {
  std::string known;
  for (const SplitMethodInfo& method : kMethods) {
    if (name == method.name) return &method;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  return Error{Errc::not_found, fmt::format("no method '{}': there are {}", name, known)};
}

}  // namespace derate
