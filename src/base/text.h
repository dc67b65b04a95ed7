// Small text helpers without locale: a comma-decimal locale must not change what a number means.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// The parts of `text` between separators; one empty part for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

// The names in a comma-separated list, without blanks around them and without empty ones.
std::set<std::string> split_names(std::string_view list);

// Whether Kubernetes takes the text as the name of a pod or a node, or before the slash of an
// annotation's key: a DNS subdomain (RFC 1123) of lower-case letters, digits, '-' and '.'.
bool is_dns_subdomain(std::string_view text);

// Without blanks, tabs and carriage returns at both ends.
std::string_view trim(std::string_view text);

std::string to_lower(std::string_view text);

// The whole text as a finite number, or nothing.
std::optional<double> parse_double(std::string_view text);
std::optional<std::int64_t> parse_integer(std::string_view text);
// Seconds of "60", "60s", "500ms", "2m" or "1h"; nothing for anything else.
std::optional<double> parse_seconds(std::string_view text);

// As one word of bash and zsh: 'it'\''s'.
std::string shell_quoted(std::string_view text);

// With so many decimals; what rounds to zero has no sign.
std::string fixed_text(double value, int digits);

// The file's bytes, at most 256 MiB. Errors: not_found, no_permission, io; the message names the
// path.
Result<std::string> read_file(const std::string& path);

// Whether a file must outlive a power cut, or only a reader's glance.
enum class Durable { no, yes };

// Writes through a temporary file beside `path`, renamed into place: a reader sees the old file or
// the new one, whole, and a link at `path` is replaced, not followed. The temporary file is always
// a new one, of a name that nobody can foresee. A durable one is flushed to disk, with its folder,
// before this returns. Errors: no_permission, io; the message names the path.
// `mode`: of its permission bits, less those that the umask takes.
Result<void> write_file_atomically(const std::string& path, std::string_view content,
                                   Durable durable = Durable::yes, mode_t mode = 0644);
// A file that is removed stays so after a power cut. One that is not there is removed already.
// Errors: no_permission, io.
Result<void> remove_file(const std::string& path);

// The process that writes, or wrote, this temporary file of write_file_atomically(); empty for any
// other name.
std::optional<int> writer_of(std::string_view file_name);

// Makes the folder and those above it, none of which another user may have put there or may
// exchange (check_way() of base/safe_path.h). Errors: no_permission, io.
Result<void> make_folders(const std::string& path);

}  // namespace derate
