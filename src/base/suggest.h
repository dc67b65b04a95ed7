// Suggestions for mistyped words: the nearest known word by edit distance.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace derate {

// How many letters have to be added, left out, exchanged for another or swapped with their
// neighbour to turn one text into the other, where no letter is touched twice (the optimal string
// alignment distance); capitals count as small letters.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The known word that `word` was most likely meant to be: the nearest by edit distance, at most one
// edit for each three letters (at least one, at most three), or else the only one that begins with
// `word`, from two letters on. Nothing where no word is near.
std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> known);

// The end of a message that refuses `word`, where `known` names what is allowed: "a, b, c". Where a
// known word is near: "; did you mean 'b'?", and the others if the list is short; else `lead`, such
// as "; there are: ", and the list.
std::string choices(std::string_view word, std::string_view lead, std::string_view known);

// The end of a message that refuses `text` where a number of [lowest, highest] was wanted, if it is
// one in another form: a percentage ("10%", or 10 where at most 1 is allowed), or with a comma for
// the point; else empty. "; did you mean 0.1?"
std::string number_hint(std::string_view text, double lowest, double highest);

}  // namespace derate
