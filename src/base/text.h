// Small text helpers without locale: a comma-decimal locale must not change what a number means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// The parts of `text` between separators; one empty part for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

// Without blanks, tabs and carriage returns at both ends.
std::string_view trim(std::string_view text);

std::string to_lower(std::string_view text);

// The whole text as a finite number, or nothing.
std::optional<double> parse_double(std::string_view text);
std::optional<std::int64_t> parse_integer(std::string_view text);

// The file's bytes, at most 256 MiB. Errors: not_found, no_permission, io; the message names the
// path.
Result<std::string> read_file(const std::string& path);

// Writes through a temporary file beside `path`, flushed to disk and renamed: a reader sees the old
// file or the new one, whole. Errors: no_permission, io; the message names the path.
Result<void> write_file_atomically(const std::string& path, std::string_view content);

}  // namespace derate
