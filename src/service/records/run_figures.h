// Conversion of a run's figures on a GPU (GpuFigures) to their view on the socket (RunGpuView) and
// back.
#pragma once

#include "api/requests.h"
#include "govern/ledger.h"

namespace derate {

// Fills in all of the view that the figures tell.
void put_figures(RunGpuView& view, const GpuFigures& figures);
GpuFigures figures_of(const RunGpuView& view);

}  // namespace derate
