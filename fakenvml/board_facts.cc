#include "fakenvml/board_facts.h"

namespace derate::fakenvml {
namespace {

// NVIDIA's data sheets; PCI ids as in pci.ids. Rows without a product stand for what the catalogue
// may gain: they are assumed. The first that fits counts.
constexpr BoardFacts kBoards[] = {
    {"V100-SXM", Architecture::volta, 16384, 7, 0, 5120, 4096, 3, 0x1DB1, false},
    {"", Architecture::pascal, 16384, 6, 0, 3584, 4096, 3, 0x15F9, false},
    {"", Architecture::volta, 16384, 7, 0, 5120, 4096, 3, 0x1DB4, false},
    {"", Architecture::turing, 15360, 7, 5, 2560, 256, 3, 0x1EB8, false},
    {"A100-SXM4-40GB", Architecture::ampere, 40960, 8, 0, 6912, 5120, 4, 0x20B0, true},
    {"A100", Architecture::ampere, 81920, 8, 0, 6912, 5120, 4, 0x20B2, true},
    {"", Architecture::ampere, 24576, 8, 6, 9216, 384, 4, 0x2235, false},
    {"4070", Architecture::ada, 8188, 8, 9, 4608, 128, 4, 0x2820, false},
    {"", Architecture::ada, 46068, 8, 9, 18176, 384, 4, 0x26B9, false},
    {"H200", Architecture::hopper, 143771, 9, 0, 16896, 6144, 5, 0x2335, true},
    {"", Architecture::hopper, 81559, 9, 0, 16896, 5120, 5, 0x2330, true},
    {"5060 Ti", Architecture::blackwell, 16311, 12, 0, 4608, 128, 5, 0x2D04, false},
    {"", Architecture::blackwell, 183359, 10, 0, 18944, 8192, 5, 0x2901, true},
};

}  // namespace

BoardFacts board_facts(std::string_view product, Architecture architecture) {
  for (const BoardFacts& board : kBoards)
    if (board.architecture == architecture && product.find(board.product) != std::string_view::npos)
      return board;
  return {"", architecture, 16384, 0, 0, 0, 0, 3, 0, false};
}

}  // namespace derate::fakenvml
