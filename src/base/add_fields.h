// Sums of structs, field by field.
#pragma once

namespace derate {

// Adds to each of these fields of `sum` what `more` has there.
template <class T, class... Field>
void add_fields(T& sum, const T& more, Field T::*... fields) {
  ((sum.*fields += more.*fields), ...);
}

}  // namespace derate
