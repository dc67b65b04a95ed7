// The picture of `derate top`: from what is known to lines that fit the terminal.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "terminal/frame.h"
#include "top_picture.h"

namespace derate::cli {

// At most look.height lines of at most look.width columns each, whatever the values. Sets how many
// rows of `choice` a page up or down moves by.
Frame top_frame(const TopPicture& picture, TopChoice& choice, const Look& look);

// --- The parts of it -----------------------------------------------------------------------------

// A heading and a line for each GPU, at most look.height lines, the selected one among them.
Frame gpu_table(const std::vector<const TopGpu*>& shown, std::size_t selected, const Look& look);
// What is known of one GPU in at most look.height lines: figures, reasons, charts, processes.
Frame gpu_panel(const TopPicture& picture, const TopGpu& gpu, const Look& look);
// A heading and a line for each of `shown` from `first` on, at most look.height lines. `selected`:
// its row is marked; a row that is not there for none.
Frame tenant_table(const std::vector<const TopTenant*>& shown, std::size_t first,
                   std::size_t selected, const Look& look);
// Tenants as they come, without filter, of one GPU.
std::vector<const TopTenant*> tenants_of(const TopPicture& picture, const TopGpu& gpu);
Frame help_lines(const TopChoice& choice);

// The first row to show so that the selected one is seen, in its middle where there are more.
std::size_t first_row(std::size_t selected, std::size_t count, std::size_t rows);
// Columns as one line; empty widths are left out.
Line row_line(std::vector<std::vector<Span>> cells, const std::vector<std::size_t>& widths,
              std::size_t gap);
Line heading_line(std::span<const FrameColumn> columns, const std::vector<std::size_t>& widths,
                  std::size_t gap, const Look& look);
std::size_t gap_of(const Look& look);

// How near a power is to its limit, as a colour and a sign that says the same.
Paint power_paint(const TopGpu& gpu);
const char* power_sign(const TopGpu& gpu);
// The upper end of a chart: the limit, or what was higher.
double top_of(std::optional<double> limit, const Series& history);
// "assure (dry run, command of uid 7)"; "none".
std::string whole_policy(const TopGpu& gpu);
// "12 % (8–15) est.": the share and its 90 % interval.
std::string saving_text(const TopSaving& saving, const Look& look);
// "693 W", "3.42 kW"; "98.2 %"; a dash for what is missing.
std::string power_text(std::optional<double> watts);
std::string ratio_text(std::optional<double> ratio, int digits = 0);
std::string whole_text(std::optional<double> number, const char* unit = "");

}  // namespace derate::cli
