#include "base/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/json_limits.h"

namespace derate {
namespace {

// Counts, keeps the keys of open objects, and ends the parsing by saying false.
class LimitCheck : public Json::json_sax_t {
 public:
  explicit LimitCheck(const JsonLimits& limits) : limits_(limits) {}
  bool passed() const { return keys_ > limits_.keys || levels_ > limits_.levels; }
  // A key that came twice in one object; empty: none did.
  const std::string& twice() const { return twice_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return ++levels_ <= limits_.levels;
  }
  bool key(string_t& name) override {
    if (++keys_ > limits_.keys) return false;
    if (open_.back().insert(name).second) return true;
    twice_ = name;
    return false;
  }
  bool end_object() override {
    open_.pop_back();
    return --levels_, true;
  }
  bool start_array(std::size_t) override { return ++levels_ <= limits_.levels; }
  bool end_array() override { return --levels_, true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  const JsonLimits& limits_;
  std::size_t keys_ = 0, levels_ = 0;
  std::vector<std::set<std::string>> open_;  // keys of the objects that are open
  std::string twice_;
};

}  // namespace

Json parse_json(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  LimitCheck check(limits);
  if (Json::sax_parse(text, &check)) return parse_json(text);
  if (!check.twice().empty())
    return Error{Errc::invalid_argument, fmt::format("'{}' is there twice", check.twice())};
  if (!check.passed()) return Json();
  return Error{Errc::invalid_argument,
               fmt::format("more than {} keys or {} levels: no more are allowed", limits.keys,
                           limits.levels)};
}

std::optional<double> number_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

std::string text_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

bool true_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_boolean() && at->get<bool>();
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace derate
