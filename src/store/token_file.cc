#include "store/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/json_fields.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

constexpr const char* kTokenSchema = "derate/tokens/1";
constexpr off_t kLargest = 1 << 20;
constexpr mode_t kMode = 0600;

struct TokenLine {
  std::string name, role, secret, created_by;
  double created_unix_seconds = 0, expires_unix_seconds = 0;
};
struct TokenPage {
  std::string schema;
  std::vector<TokenLine> tokens;
};

template <class M, class V>
void visit_fields(M& m, V&& visit) requires FieldsOf<M, TokenLine> {
  // What a WallTime holds, with room to spare.
  constexpr double kEnd = 9e9;
  visit(required_field("name", ""), m.name);
  visit(required_field("role", ""), m.role);
  visit(required_field("secret", ""), m.secret);
  visit(required_field("created_by", ""), m.created_by);
  visit(required_field("created_unix_seconds", "").within(-kEnd, kEnd), m.created_unix_seconds);
  visit(required_field("expires_unix_seconds", "").within(-kEnd, kEnd), m.expires_unix_seconds);
}
template <class M, class V>
void visit_fields(M& m, V&& visit) requires FieldsOf<M, TokenPage> {
  visit(required_field("schema", ""), m.schema);
  visit(required_field("tokens", ""), m.tokens);
}

WallTime wall_time(double unix_seconds) { return WallTime(from_seconds(unix_seconds)); }

Error refused(const std::string& path, const std::string& why) {
  return {Errc::no_permission, fmt::format("tokens '{}': {}", path, why)};
}

// Who could write it could give themselves a role, who could read it has every token.
Result<void> check_owner(const std::string& path, const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return refused(path, "is no file");
  if (found.st_uid != ::geteuid())
    return refused(path, fmt::format("belongs to uid {}, wanted is {}: who wrote it?", found.st_uid,
                                     ::geteuid()));
  if ((found.st_mode & 07777 & ~kMode) != 0)
    return refused(path,
                   fmt::format("has mode {:04o}, wanted is 0600: revoke its tokens, as others "
                               "may have read them (`chmod 600` first)",
                               found.st_mode & 07777));
  if (found.st_size > kLargest) return Error{Errc::bad_data, path + ": is larger than 1 MiB"};
  return {};
}

// Empty: there is none.
Result<std::string> read_own_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return std::string();
  if (!file.valid() && errno == ELOOP) return refused(path, "is a link");
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0)
    return Error{errno == EACCES ? Errc::no_permission : Errc::io,
                 fmt::format("cannot open '{}': {}", path, std::strerror(errno))};
  TRY(check_owner(path, found));
  std::string out(static_cast<std::size_t>(found.st_size), '\0');
  std::size_t size = 0;
  while (size < out.size()) {
    const ssize_t n = ::read(file.get(), out.data() + size, out.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{Errc::io, fmt::format("cannot read '{}' to its end", path)};
    size += static_cast<std::size_t>(n);
  }
  // An empty file is no page of none: something has cut it.
  return out.empty() ? Result<std::string>(Error{Errc::bad_data, path + ": is empty"}) : out;
}

}  // namespace

Result<std::vector<TokenRecord>> read_tokens(const std::string& path) {
  const std::string text = TRY(read_own_file(path));
  std::vector<TokenRecord> out;
  if (text.empty()) return out;
  const auto page =
      json_fields::message_of<TokenPage>(parse_json(text), json_fields::Unknown::refused);
  if (!page.ok()) return Error{Errc::bad_data, path + ": " + page.error().message};
  if (page->schema != kTokenSchema)
    return Error{Errc::bad_data, fmt::format("{}: schema '{}': this version reads '{}'", path,
                                             page->schema, kTokenSchema)};
  for (const TokenLine& each : page->tokens)
    out.push_back({each.name, each.role, each.secret, each.created_by,
                   wall_time(each.created_unix_seconds), wall_time(each.expires_unix_seconds)});
  return out;
}

Result<void> write_tokens(const std::string& path, const std::vector<TokenRecord>& tokens) {
  TokenPage page{.schema = kTokenSchema};
  for (const TokenRecord& each : tokens)
    page.tokens.push_back({each.name, each.role, each.secret, each.created_by,
                           seconds(each.created.time_since_epoch()),
                           seconds(each.expires.time_since_epoch())});
  TRY(make_folders(std::filesystem::path(path).parent_path()));
  return write_file_atomically(path, json_text(json_fields::object_of(page), 1) + "\n",
                               Durable::yes, kMode);
}

}  // namespace derate
