// Requests to the server of the simulated GPUs: whatever a client sends, the machine answers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "fakenvml/sim_machine.h"

namespace derate::fakenvml {
namespace {

// A request in few bytes: op, GPU, who, then numbers and a name. Headers are right half the time.
struct Short {
  std::uint8_t op, gpu, who, header;
  std::uint32_t a, b, c, d;
  double number;
  char name[16];
};

// The machine needs zeros. The constructors of a State, which depend on no input, took half the
// time of a run.
struct Free {
  void operator()(State* state) const { std::free(state); }
};
using StateMemory = std::unique_ptr<State, Free>;

Request unpacked(const Short& packed) {
  Request request;
  if (packed.header % 8 == 7) request.version = packed.header;
  request.op = static_cast<Op>(packed.op);
  request.gpu = packed.gpu < 128 ? packed.gpu : kEveryGpu;
  request.a = packed.a;
  request.b = packed.b;
  request.c = packed.c;
  request.d = packed.d;
  request.number = packed.number;
  std::memcpy(request.name, packed.name, sizeof packed.name);
  // No path: the server would read any file that the fuzzer can name.
  return request;
}

}  // namespace
}  // namespace derate::fakenvml

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate::fakenvml;
  static_assert(alignof(State) <= alignof(std::max_align_t));
  const StateMemory state(static_cast<State*>(std::calloc(1, sizeof(State))));
  CHECK(state != nullptr);
  MachineOptions options;
  options.chips = {*derate::find_sim_chip("V100-SXM2"), *derate::find_sim_chip("H200")};
  options.owner = 1;
  SimMachine machine(options, *state);
  derate::Duration time{};
  for (Short packed; size >= sizeof packed; data += sizeof packed, size -= sizeof packed) {
    std::memcpy(static_cast<void*>(&packed), data, sizeof packed);
    const Peer peer{packed.who % 4u, 0, packed.who / 4u % 3u};
    const Outcome outcome = machine.handle(unpacked(packed), peer);
    CHECK(outcome.kill || outcome.reply.magic == kProtocolMagic);
    if (packed.who > 200) machine.forget(packed.who % 4u, packed.who > 250);
    machine.advance_to(time += std::chrono::milliseconds(packed.header));
    CHECK(state->gpu[0].now.read().has_value());
  }
  return 0;
}
