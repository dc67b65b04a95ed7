// nlohmann/json 3.11.2 asks __has_attribute for [[no_unique_address]], which clang 14 answers for GNU
// attributes alone: an ordered_json has another layout there than with g++, and objects of the two
// cannot be linked together, as the tests of a sanitizer build are.
#pragma once

#include_next <nlohmann/detail/macro_scope.hpp>

#undef JSON_NO_UNIQUE_ADDRESS
#define JSON_NO_UNIQUE_ADDRESS [[no_unique_address]]
