// Requests of the sockets: JSON objects whose fields are declared, and their answers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"

namespace derate {

// any: what is in it is checked by whom it is for.
enum class FieldType : std::uint8_t { text, flag, number, texts, any };
enum class Need : std::uint8_t { optional, required };

struct Field {
  const char* name;
  FieldType type;
  Need need = Need::optional;
};

// A field of the wrong type or one that is not listed is refused: "0" is not 0, and neither is all
// GPUs. `command` is always there. Errors: invalid_argument naming the field and what is allowed.
Result<void> check_fields(const nlohmann::ordered_json& request, std::span<const Field> fields);

// The line that answers: ok and the answer's fields, or what was wrong, its exit code and the word
// for its kind (word_of()).
std::string answer_text(const Result<nlohmann::ordered_json>& answer);

}  // namespace derate
