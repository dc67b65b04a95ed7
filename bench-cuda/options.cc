#include "options.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <variant>

#include "failure.h"

namespace derate::bench_cuda {
namespace {

using Member = std::variant<std::optional<double> Options::*, double Options::*,
                            std::int64_t Options::*, std::vector<double> Options::*>;

struct Option {
  std::string_view name;
  std::string_view value;
  std::string_view help;
  double lowest, highest;
  Member member;
};

constexpr double kLargestSize = 1e12;  // the workload's own bounds come after
constexpr Option kOptions[] = {
    {"--seconds", "S", "run so long (default 30)", 0.1, 1e7, &Options::seconds},
    {"--work", "N", "run until so much is done, in the workload's unit", 1e-9, 1e18,
     &Options::work},
    {"--size", "N", "problem size, see list (default: the workload's)", 1, kLargestSize,
     &Options::size},
    {"--device", "I", "CUDA's index of the GPU (default 0)", 0, 1023, &Options::device},
    {"--seed", "N", "seed of the input values (default 1)", 0, 1e15, &Options::seed},
    {"--period-seconds", "S", "two-phase: both phases together (default 10)", 0.1, 1e6,
     &Options::period_seconds},
    {"--duty", "F", "two-phase: the compute phase's share of it (default 0.5)", 0, 1,
     &Options::duty},
    {"--data", "F,F", "random values among the inputs, shares in turns (default 1)", 0, 1,
     &Options::data},
    {"--data-seconds", "S", "how long each of these (default 10)", 0.1, 1e6,
     &Options::data_seconds},
    {"--heat", "F", "share of the GPU whose tensor cores are busy besides (default 0)", 0, 1,
     &Options::heat},
    {"--heat-data", "F,F", "as --data, for what these compute (default: --data's)", 0, 1,
     &Options::heat_data},
};

std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

[[noreturn]] void refuse(std::string_view place, std::string_view value,
                         const std::string& allowed) {
  throw Failure(exit_code::kUsage,
                std::string(place) + " '" + std::string(value) + "': allowed is " + allowed);
}

std::string names_of(const std::vector<Workload>& workloads) {
  std::string names = "list";
  for (const Workload& workload : workloads) names += std::string(", ") + workload.name;
  return names;
}

template <class T>
T parse_number(const Option& option, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  // Written so that NaN fails.
  if (!whole || !(double(value) >= option.lowest && double(value) <= option.highest))
    refuse(option.name, text,
           std::string(std::is_integral_v<T> ? "a whole number" : "a number") + " from " +
               number(option.lowest) + " to " + number(option.highest));
  return value;
}

std::vector<double> parse_list_of_numbers(const Option& option, std::string_view text) {
  std::vector<double> values;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    values.push_back(parse_number<double>(option, text.substr(0, comma)));
    more = comma != text.npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return values;
}

void set_option(Options& options, const Option& option, std::string_view text) {
  if (const auto* real = std::get_if<double Options::*>(&option.member))
    options.*(*real) = parse_number<double>(option, text);
  else if (const auto* list = std::get_if<std::vector<double> Options::*>(&option.member))
    options.*(*list) = parse_list_of_numbers(option, text);
  else if (const auto* maybe = std::get_if<std::optional<double> Options::*>(&option.member))
    options.*(*maybe) = parse_number<double>(option, text);
  else
    options.*std::get<std::int64_t Options::*>(option.member) =
        parse_number<std::int64_t>(option, text);
}

const Option& find_option(std::string_view name) {
  std::string names;
  for (const Option& option : kOptions) {
    if (option.name == name) return option;
    names += (names.empty() ? "" : ", ") + std::string(option.name);
  }
  refuse("option", name, names);
}

void check_size(const Sizes& sizes, std::int64_t size) {
  const bool power = sizes.rule == SizeRule::power_of_two;
  const bool fits = power ? std::has_single_bit(std::uint64_t(size)) : size % sizes.lowest == 0;
  if (fits && size >= sizes.lowest && size <= sizes.highest) return;
  refuse("--size", std::to_string(size),
         (power ? "a power of two" : "a multiple of " + std::to_string(sizes.lowest)) + " from " +
             std::to_string(sizes.lowest) + " to " + std::to_string(sizes.highest) + " (" +
             sizes.what + ")");
}

CommandLine parse_list(const std::vector<std::string_view>& arguments) {
  if (arguments.size() == 1) return {Command::list};
  if (arguments.size() > 2 || arguments[1] != "--json")
    refuse("option of list", arguments[1] == "--json" ? arguments[2] : arguments[1],
           "--json, once");
  return {Command::list_json};
}

CommandLine parse_run(const std::vector<std::string_view>& arguments, const Workload& workload) {
  CommandLine line{Command::run, &workload, {}};
  line.options.size = workload.sizes.initial;
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const Option& option = find_option(arguments[i]);
    if (i + 1 == arguments.size()) refuse(option.name, "", "a value after it");
    set_option(line.options, option, arguments[i + 1]);
  }
  check_size(workload.sizes, line.options.size);
  if (!line.options.seconds && !line.options.work) line.options.seconds = 30;
  return line;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string_view>& arguments,
                               const std::vector<Workload>& workloads) {
  for (const std::string_view argument : arguments)
    if (argument == "--help" || argument == "-h") return {Command::help};
  const std::string_view first = arguments.empty() ? "" : arguments.front();
  if (first == "list") return parse_list(arguments);
  for (const Workload& workload : workloads)
    if (first == workload.name) return parse_run(arguments, workload);
  refuse("workload", first, names_of(workloads));
}

std::string help_text() {
  std::string text =
      "usage: derate-bench-cuda WORKLOAD [options]\n"
      "       derate-bench-cuda list [--json]\n\n"
      "Keeps a GPU at one kind of work, checks the result first, and prints what it\n"
      "does as JSON lines: a header, a line a second, a summary.\n\n"
      "options:\n";
  for (const Option& option : kOptions) {
    std::string left = "  " + std::string(option.name) + " " + std::string(option.value);
    left.resize(22, ' ');
    text += left + std::string(option.help) + "\n";
  }
  return text +
         "\nexamples:\n"
         "  derate-bench-cuda list\n"
         "  derate-bench-cuda gemm-tensor --seconds 60\n"
         "  derate-bench-cuda stream-triad --work 50000 --device 1\n"
         "  derate-bench-cuda two-phase --period-seconds 20 --duty 0.3 --seconds 120\n"
         "  derate-bench-cuda gemm-tensor --data 0,0.25,1 --data-seconds 5\n\n"
         "Ctrl-C and SIGTERM end a run with its summary. Exit codes: 0 done, 1 wrong\n"
         "result, 2 usage, 6 no such GPU or a CUDA call failed, 9 no driver or one too\n"
         "old, 130 Ctrl-C, 143 SIGTERM.\n";
}

}  // namespace derate::bench_cuda
