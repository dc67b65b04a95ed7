// Compressed text (gzip, base64), for a page that carries its figures in itself.
#pragma once

#include <string>

namespace derate::cli {

// Compressed by gzip (RFC 1952) at its best, as base64 with padding (RFC 4648, section 4).
std::string packed(const std::string& text);

}  // namespace derate::cli
