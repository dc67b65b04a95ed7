#include "store/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nettle/sha2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "base/json_fields.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

constexpr const char* kTokenSchema = "derate/tokens/2";
constexpr const char* kSchemaWithSecrets = "derate/tokens/1";
constexpr off_t kLargest = 1 << 20;
constexpr mode_t kMode = 0600;

struct TokenLine {
  std::string name, role, secret, sha256, created_by;
  double created_unix_seconds = 0, expires_unix_seconds = 0;
};
struct TokenPage {
  std::string schema;
  std::vector<TokenLine> tokens;
};

void visit_fields(FieldsOf<TokenLine> auto& m, auto&& visit) {
  // What a WallTime holds, with room to spare.
  constexpr double kEnd = 9e9;
  visit(required_field("name", ""), m.name);
  visit(required_field("role", ""), m.role);
  visit(optional_field("secret", "in files of Derate 0.1 alone"), m.secret);
  visit(optional_field("sha256", ""), m.sha256);
  visit(required_field("created_by", ""), m.created_by);
  visit(required_field("created_unix_seconds", "").within(-kEnd, kEnd), m.created_unix_seconds);
  visit(required_field("expires_unix_seconds", "").within(-kEnd, kEnd), m.expires_unix_seconds);
}
void visit_fields(FieldsOf<TokenPage> auto& m, auto&& visit) {
  visit(required_field("schema", ""), m.schema);
  visit(required_field("tokens", ""), m.tokens);
}

WallTime wall_time(double unix_seconds) { return WallTime(from_seconds(unix_seconds)); }

Error refused(const std::string& path, const std::string& why) {
  return {Errc::no_permission, fmt::format("tokens '{}': {}", path, why)};
}

// A user who could write it could give themselves a role. A user who could read it in Derate 0.1
// has every token.
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

std::string token_hash(std::string_view secret) {
  sha256_ctx state;
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_init(&state);
  sha256_update(&state, secret.size(), reinterpret_cast<const std::uint8_t*>(secret.data()));
  sha256_digest(&state, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

Result<TokenFile> read_tokens(const std::string& path) {
  const std::string text = TRY(read_own_file(path));
  TokenFile out;
  if (text.empty()) return out;
  const auto page =
      json_fields::message_of<TokenPage>(parse_json(text), json_fields::Unknown::refused);
  if (!page.ok()) return Error{Errc::bad_data, path + ": " + page.error().message};
  out.had_secrets = page->schema == kSchemaWithSecrets;
  if (!out.had_secrets && page->schema != kTokenSchema)
    return Error{Errc::bad_data, fmt::format("{}: schema '{}': this version reads '{}'", path,
                                             page->schema, kTokenSchema)};
  for (const TokenLine& each : page->tokens) {
    const auto& [wanted, other] =
        out.had_secrets ? std::tie(each.secret, each.sha256) : std::tie(each.sha256, each.secret);
    if (wanted.empty() || !other.empty())
      return Error{Errc::bad_data, fmt::format("{}: token '{}': wanted is {}", path, each.name,
                                               out.had_secrets ? "a secret" : "a sha256")};
    out.tokens.push_back({each.name, each.role, out.had_secrets ? token_hash(wanted) : wanted,
                          each.created_by, wall_time(each.created_unix_seconds),
                          wall_time(each.expires_unix_seconds)});
  }
  return out;
}

Result<void> write_tokens(const std::string& path, const std::vector<TokenRecord>& tokens) {
  TokenPage page{.schema = kTokenSchema};
  for (const TokenRecord& each : tokens)
    page.tokens.push_back({.name = each.name,
                           .role = each.role,
                           .sha256 = each.hash,
                           .created_by = each.created_by,
                           .created_unix_seconds = seconds(each.created.time_since_epoch()),
                           .expires_unix_seconds = seconds(each.expires.time_since_epoch())});
  TRY(make_folders(std::filesystem::path(path).parent_path()));
  return write_file_atomically(path, json_text(json_fields::object_of(page), 1) + "\n",
                               Durable::yes, kMode);
}

}  // namespace derate
