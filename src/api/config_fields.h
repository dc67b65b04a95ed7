// The fields of requests and answers of the configuration and of tokens as JSON, for requests.cc.
#pragma once

#include "api/config_requests.h"
#include "base/json_fields.h"

namespace derate {

void visit_fields(FieldsOf<ConfigShow, ConfigDiff, TokenList> auto&, auto&&) {}
void visit_fields(FieldsOf<ConfigSet> auto& m, auto&& visit) {
  visit(optional_field("set", "SECTION.KEY=VALUE or policy.NAME.PARAMETER=VALUE each"), m.set);
  visit(optional_field("unset", "keys of what was set before, each"), m.unset);
  visit(optional_field("dry_run", "check it and tell what would change"), m.dry_run);
}
void visit_fields(FieldsOf<TokenCreate> auto& m, auto&& visit) {
  visit(required_field("name", "1 to 64 letters, digits, '.', '_' and '-'"), m.name);
  visit(optional_field("role", "reader, user or operator"), m.role);
  visit(optional_field("days", "until it expires").in("days").within(0.001, 3650), m.days);
}
void visit_fields(FieldsOf<TokenRevoke> auto& m, auto&& visit) {
  visit(required_field("name", "its name"), m.name);
}

void visit_fields(FieldsOf<SettingView> auto& m, auto&& visit) {
  visit(required_field("key", "section.key, policy.NAME.PARAMETER, or job: all its entries"),
        m.key);
  visit(optional_field("value", "in force, as TOML; absent: none"), m.value);
  visit(optional_field("default", "as TOML; absent: none"), m.default_value);
  visit(optional_field("where", "FILE:LINE:COLUMN that says it; absent: the default holds"),
        m.where);
  visit(optional_field("at_start", "a changed one is taken in at the daemon's next start"),
        m.at_start);
}
void visit_fields(FieldsOf<SettingsAnswer> auto& m, auto&& visit) {
  visit(required_field("settings", "in the order of the documentation"), m.settings);
  visit(required_field("set_file", "what config-set writes"), m.set_file);
}
void visit_fields(FieldsOf<SettingChangeView> auto& m, auto&& visit) {
  visit(required_field("key", "as config-show has it"), m.key);
  visit(optional_field("before", "as TOML; absent: none"), m.before);
  visit(optional_field("after", "as TOML; absent: none"), m.after);
  visit(optional_field("at_start", "it is taken in at the daemon's next start"), m.at_start);
}
void visit_fields(FieldsOf<ConfigChangesAnswer> auto& m, auto&& visit) {
  visit(required_field("message", "a sentence"), m.message);
  visit(required_field("changes", "what differs from the settings in force before"), m.changes);
  visit(optional_field("warnings", "sentences: which GPUs are not governed because of it, and why"),
        m.warnings);
}

void visit_fields(FieldsOf<TokenView> auto& m, auto&& visit) {
  visit(required_field("name", "its name"), m.name);
  visit(required_field("role", "what it allows"), m.role);
  visit(required_field("created_by", "who asked for it"), m.created_by);
  visit(required_field("created_unix_seconds", "when"), m.created_unix_seconds);
  visit(required_field("expires_unix_seconds", "when"), m.expires_unix_seconds);
  visit(required_field("expired", "it is believed no more"), m.expired);
}
void visit_fields(FieldsOf<TokenAnswer> auto& m, auto&& visit) {
  visit(required_field("message", "what was done"), m.message);
  visit(required_field("token", "the secret, which is told this once"), m.token);
  visit(required_field("expires_unix_seconds", "when"), m.expires_unix_seconds);
}
void visit_fields(FieldsOf<TokensAnswer> auto& m, auto&& visit) {
  visit(required_field("tokens", "by name; never their secrets"), m.tokens);
  visit(required_field("wrong", "how many were not believed since the daemon's start"), m.wrong);
}

}  // namespace derate
