#include "base/errc_word.h"

namespace derate {
namespace {

struct ErrcWord {
  Errc code;
  std::string_view word;
};

constexpr ErrcWord kWords[] = {
    {Errc::invalid_argument, "invalid_argument"},
    {Errc::not_found, "not_found"},
    {Errc::not_supported, "not_supported"},
    {Errc::no_permission, "no_permission"},
    {Errc::query_failed, "query_failed"},
    {Errc::driver_not_loaded, "driver_not_loaded"},
    {Errc::library_missing, "library_missing"},
    {Errc::function_missing, "function_missing"},
    {Errc::gpu_lost, "gpu_lost"},
    {Errc::gpu_stuck, "gpu_stuck"},
    {Errc::busy, "busy"},
    {Errc::bad_config, "bad_config"},
    {Errc::bad_data, "bad_data"},
    {Errc::io, "io"},
    {Errc::interrupted, "interrupted"},
};

}  // namespace

std::string_view word_of(Errc code) {
  for (const ErrcWord& each : kWords)
    if (each.code == code) return each.word;
  return "io";
}

std::optional<Errc> errc_of(std::string_view word) {
  for (const ErrcWord& each : kWords)
    if (each.word == word) return each.code;
  return std::nullopt;
}

}  // namespace derate
