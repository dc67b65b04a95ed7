// What a run came to on a GPU, as it goes over the socket and back.
#pragma once

#include "api/requests.h"
#include "govern/ledger.h"

namespace derate {

// Fills in all of the view that the figures tell.
void put_figures(RunGpuView& view, const GpuFigures& figures);
GpuFigures figures_of(const RunGpuView& view);

}  // namespace derate
