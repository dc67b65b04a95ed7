#include "core/card_reading.h"

#include <fmt/format.h>

namespace derate {
namespace {

struct XidRow {
  int number;
  bool of_application;
  const char* text;
};

// docs.nvidia.com/deploy/xid-errors, in our words.
constexpr XidRow kXids[] = {
    {8, false, "the GPU stopped processing"},
    {13, true, "a program made an illegal instruction or access"},
    {31, true, "a program accessed memory that it does not have"},
    {32, false, "invalid or corrupted commands reached the GPU"},
    {38, false, "the driver's firmware failed"},
    {43, true, "a program's work was stopped"},
    {45, true, "a program was ended, and its work with it"},
    {48, false, "a memory error that ECC cannot correct"},
    {61, false, "the card's controller reached a breakpoint"},
    {62, false, "the card's controller halted"},
    {63, false, "a row of memory is remapped or a page retired"},
    {64, false, "a row of memory could not be remapped or a page not retired"},
    {68, true, "the video decoder failed on its input"},
    {69, true, "the graphics engine was used wrongly"},
    {74, false, "an NVLink failed"},
    {79, false, "the GPU has fallen off the bus"},
    {92, false, "many memory errors that ECC corrects"},
    {94, false, "an uncorrectable memory error, contained to a program"},
    {95, false, "an uncorrectable memory error, not contained"},
    {109, false, "a context switch timed out"},
    {119, false, "the GPU's system processor does not answer"},
    {120, false, "the GPU's system processor failed"},
    {140, false, "a memory error that ECC has not recovered"},
    {154, false, "the driver names what repairs the GPU"},
};

const XidRow* row_of(int number) {
  for (const XidRow& row : kXids)
    if (row.number == number) return &row;
  return nullptr;
}

}  // namespace

std::optional<Xid> gravest(const XidLog& log) {
  return log.card.last ? log.card.last : log.programs.last;
}

std::string xid_text(int number) {
  const XidRow* row = row_of(number);
  return row != nullptr ? row->text : "";
}

std::string xid_name(int number) {
  const XidRow* row = row_of(number);
  return row != nullptr ? fmt::format("Xid {} ({})", number, row->text)
                        : fmt::format("Xid {}", number);
}

bool is_of_application(int number) {
  const XidRow* row = row_of(number);
  return row != nullptr && row->of_application;
}

}  // namespace derate
