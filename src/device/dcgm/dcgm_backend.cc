#include "device/dcgm/dcgm_backend.h"

#include <utility>

#include "device/dcgm/dcgm_source.h"

namespace derate {

std::shared_ptr<DcgmReader> DcgmConnection::reader() {
  const std::lock_guard lock(mutex_);
  if (reader_ != nullptr || choice_.use == DcgmUse::off) return reader_;
  auto created = DcgmReader::create(
      choice_.use, [addresses = choice_.addresses] { return connect_dcgm(addresses); }, clock_,
      log_);
  if (created.ok()) reader_ = *std::move(created);
  return reader_;
}

Backend with_dcgm(Backend inner, std::shared_ptr<DcgmConnection> connection) {
  inner.open = [open = std::move(inner.open),
                connection = std::move(connection)](const GpuId& id) -> Result<OpenGpu> {
    OpenGpu gpu = TRY(open(id));
    if (gpu.source->capability().activity_counters) return gpu;
    if (auto reader = connection->reader())
      gpu.source = std::make_unique<DcgmSource>(std::move(gpu.source), std::move(reader));
    return gpu;
  };
  return inner;
}

}  // namespace derate
