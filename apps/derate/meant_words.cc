#include "meant_words.h"

#include <algorithm>
#include <initializer_list>

namespace derate::cli {
namespace {

struct MeantVerb {
  std::string_view group;
  std::initializer_list<std::string_view> words;
  const char* command;
};

const MeantVerb kMeantVerbs[] = {
    {"", {"set", "govern", "start", "enable", "on", "apply"}, "derate policy set assure"},
    {"", {"policies", "modes"}, "derate policy list"},
    {"", {"stop", "off", "disable", "kill", "unset", "free", "ungovern"}, "derate release --all"},
    {"", {"reset", "undo", "revert", "unlock", "rollback"}, "derate release --all"},
    {"", {"show", "list", "ls", "info", "gpus", "gpu", "smi", "query"}, "derate status"},
    {"", {"ps", "who", "process", "processes", "tenants", "pmon"}, "derate attribute"},
    {"", {"watch", "monitor", "live", "htop", "dmon", "dashboard"}, "derate top"},
    {"", {"log", "logs", "journal", "alerts", "messages"}, "derate events"},
    {"", {"cost", "costs", "price", "invoice", "usage", "billing"}, "derate bill"},
    {"", {"explain", "reason"}, "derate why"},
    {"", {"check", "diagnose", "diag", "health", "test"}, "derate doctor"},
    {"", {"measure", "meter", "joules"}, "derate energy"},
    {"", {"exec", "launch", "wrap"}, "derate run -- COMMAND"},
    {"", {"web", "page", "browser", "gui", "serve"}, "derate ui"},
    {"", {"settings", "conf", "configuration"}, "derate config print"},
    {"", {"recommend", "suggest", "hint", "profile"}, "derate advise"},
    {"", {"report-savings", "saved", "roi", "co2"}, "derate savings"},
    {"", {"version"}, "derate --version"},
    {"", {"man"}, "derate manual"},
    {"policy", {"get", "current", "status"}, "derate status"},
    {"policy", {"unset", "remove", "delete", "off", "stop", "clear", "release"}, "derate release"},
    {"policy", {"keep", "accept"}, "derate policy confirm"},
    {"policy", {"describe", "info", "params"}, "derate policy show"},
    {"config", {"get", "show", "list", "view", "cat", "dump"}, "derate config print"},
    {"config", {"edit", "change", "add"}, "derate config set SECTION.KEY=VALUE"},
    {"config", {"unset", "remove", "delete", "reset"}, "derate config set --unset SECTION.KEY"},
    {"config", {"test", "validate", "verify"}, "derate config check"},
    {"config", {"reload", "apply"}, "systemctl reload derated"},
    {"token", {"delete", "remove", "rm"}, "derate token revoke"},
    {"token", {"add", "new", "make", "generate"}, "derate token create"},
    {"token", {"show", "ls"}, "derate token list"},
    {"tune job", {"add", "new"}, "derate tune job create"},
    {"tune job", {"delete", "rm", "forget"}, "derate tune job remove"},
    {"tune job", {"ls"}, "derate tune job list"},
    {"lab", {"list"}, "derate lab show"},
};

struct MeantBy {
  std::initializer_list<std::string_view> words;
  std::initializer_list<MeantOption> meant;
};

const MeantBy kMeantOptions[] = {
    {{"since", "start", "begin", "after"}, {{"from", ""}}},
    {{"until", "end", "before"}, {{"to", ""}}},
    {{"last", "days", "day", "period"}, {{"from now-7d", ""}, {"for", ""}}},
    {{"tail", "lines", "n", "limit", "count", "head"},
     {{"changes", ""}, {"points", ""}, {"rounds", ""}, {"from", ""}}},
    {{"time", "duration", "seconds", "timeout", "t", "secs"}, {{"for", ""}, {"interval", ""}}},
    {{"d", "delay", "every", "period", "loop", "l"}, {{"interval", ""}, {"", "derate top"}}},
    {{"watch", "live", "w", "loop"}, {{"follow", ""}, {"", "derate top"}}},
    {{"csv", "format", "output", "o", "json", "table"}, {{"csv", ""}, {"json", ""}}},
    {{"gpus", "g", "id", "ids", "device", "devices", "index", "gpu", "i"},
     {{"gpu", ""}, {"by gpu", ""}}},
    {{"user", "users", "u", "job", "jobs", "team", "group", "project", "account", "group-by"},
     {{"by user", ""}, {"", "derate bill --by user"}}},
    {{"all", "a"}, {{"", "the same without it, which is all GPUs"}}},
    {{"policy", "p", "mode", "name"}, {{"policy", ""}, {"", "derate policy set NAME"}}},
    {{"promise", "loss", "slowdown", "max-loss"}, {{"delta", ""}, {"max-loss", ""}}},
    {{"permanent", "persist", "save", "persistent", "forever"},
     {{"keep", ""}, {"", "derate policy set NAME --keep"}}},
    {{"try", "trial", "test", "temporary", "revert-after"},
     {{"confirm-within 5m", ""}, {"dry-run", ""}}},
    {{"simulate", "noop", "check"}, {{"dry-run", ""}, {"sim", ""}}},
    {{"port", "address", "host", "bind", "p"}, {{"listen 127.0.0.1:PORT", ""}}},
    {{"config", "c", "file", "f"}, {{"config", ""}, {"", "derate config print FILE"}}},
    {{"fix", "repair"}, {{"reset", ""}, {"", "derate doctor, whose `->` say what to do"}}},
    {{"force", "yes", "y"}, {{"replace", ""}, {"", "the same without it"}}},
    {{"v", "debug", "long"}, {{"verbose", ""}, {"json", ""}}},
    {{"co2", "carbon"}, {{"co2", ""}, {"", "derate savings --co2 GRAMS"}}},
    {{"chip", "chips", "model"}, {{"sim", ""}, {"", "derate sim list"}}},
};

bool has(std::initializer_list<std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::string meant_command(std::string_view group, std::string_view word) {
  for (const MeantVerb& each : kMeantVerbs)
    if (each.group == group && has(each.words, word)) return each.command;
  return "";
}

MeantOption meant_option(std::string_view word, std::size_t place) {
  for (const MeantBy& each : kMeantOptions) {
    if (!has(each.words, word)) continue;
    if (place < each.meant.size()) return each.meant.begin()[place];
    place -= each.meant.size();
  }
  return {};
}

}  // namespace derate::cli
