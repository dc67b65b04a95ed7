#include "tenant_namer.h"

#include <memory>

namespace derate::cli {
namespace {

struct Namer {
  SystemClock clock;
  TenantBook book{machine_readers(), clock};
};

}  // namespace

TenantNamer machine_namer(const std::string&) {
  return [namer = std::make_shared<Namer>()](const GpuId& gpu, const Tenancy& tenancy) {
    return namer->book.name(gpu, tenancy);
  };
}

}  // namespace derate::cli
