// derate token create|list|revoke

#include "api/requests.h"
#include "base/json.h"
#include "base/when.h"
#include "command_options.h"
#include "control.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string when_of(double unix_seconds) { return when_text(WallTime(from_seconds(unix_seconds))); }

}  // namespace

// The secret alone is what a script wants of it.
Result<int> run_verb(const TokenCreateOptions& options) {
  const Json answer =
      TRY(daemon_answer(TRY(ask_operators(TokenCreate{options.name, options.role, options.days}))));
  if (options.json) return print_json("token create", answer);
  const TokenAnswer made = TRY(answer_of<TokenAnswer>(answer));
  warn("{}\n", made.message);
  print("{}\n", made.token);
  return 0;
}

Result<int> run_verb(const TokenListOptions& options) {
  const Json answer = TRY(daemon_answer(TRY(ask_operators(TokenList{}))));
  if (options.json) return print_json("token list", answer);
  const TokensAnswer told = TRY(answer_of<TokensAnswer>(answer));
  Table table({"<token", "<role", "<created", "<by", "<expires"});
  for (const TokenView& each : told.tokens)
    table.add({each.name, each.role, when_of(each.created_unix_seconds), each.created_by,
               when_of(each.expires_unix_seconds) + (each.expired ? ": expired" : "")},
              each.expired ? Paint::dim : Paint::plain);
  print("{}", told.tokens.empty() ? "there are no tokens\n" : table.text());
  if (told.wrong > 0) print("\n{} wrong tokens since derated's start\n", told.wrong);
  return 0;
}

Result<int> run_verb(const TokenRevokeOptions& options) {
  const Json answer = TRY(daemon_answer(TRY(ask_operators(TokenRevoke{options.name}))));
  if (options.json) return print_json("token revoke", answer);
  print("{}\n", TRY(answer_of<MessageAnswer>(answer)).message);
  return 0;
}

}  // namespace derate::cli
