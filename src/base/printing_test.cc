#include "base/printing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/json.h"

namespace derate {
namespace {

// Bytes of all kinds, with more of those that do harm than chance alone would bring.
rc::Gen<std::string> bytes() {
  const auto any = rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const auto bad = rc::gen::elementOf(std::vector<std::string>{
      "\n", "\r", "\n<0>", "\x1b]0;owned\a", "\x1b[2J", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\xff",
      "\xed\xa0\x80", "\xf3\xa0\x81\x81", "=1+1", "\"", "\\", std::string(1, '\0'), "\xc3\xa4"});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(any, bad)),
                      [](const std::vector<std::string>& parts) {
                        std::string out;
                        for (const std::string& part : parts) out += part;
                        return out;
                      });
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

TEST(LogText, AnyBytesAreOneLineOfPrintingAscii) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = *bytes();
    const auto longest = *rc::gen::inRange<std::size_t>(0, 300);
    const std::string line = log_text(text, longest);
    RC_ASSERT(is_ascii(line));
    RC_ASSERT(line.size() <= longest);
    RC_ASSERT(is_ascii(log_text(text)));
    if (is_ascii(text) && text.size() <= longest) RC_ASSERT(line == text);
  }));
}

TEST(LogText, ShowsWhatItReplacesAndCutsWhatIsLong) {
  EXPECT_EQ(log_text("x\n<0>derated: GPU 0 is on fire\x1b[2J"),
            "x\\x0a<0>derated: GPU 0 is on fire\\x1b[2J");
  EXPECT_EQ(log_text("\xc3\xa4"), "\\xc3\\xa4");
  const std::string cut = log_text(std::string(1 << 20, 'a'));
  EXPECT_EQ(cut.size(), kLongestLogLine);
  EXPECT_TRUE(cut.ends_with("a..."));
}

// Decoded by another's hand: the JSON library's.
bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

TEST(PrintingText, HasNoControlCharacterAndStaysUtf8) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = *bytes();
    for (const Lines lines : {Lines::one, Lines::many}) {
      const std::string out = printing_text(text, lines);
      RC_ASSERT(is_utf8(out));
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto c = static_cast<unsigned char>(out[i]);
        const bool kept = lines == Lines::many && (c == '\n' || c == '\t');
        RC_ASSERT((kept || (c >= ' ' && c != 0x7f)));
        RC_ASSERT((c != 0xc2 || static_cast<unsigned char>(out[i + 1]) >= 0xa0));
      }
      RC_ASSERT(printing_text(out, lines) == out);
    }
  }));
}

TEST(PrintingText, KeepsWhatPeopleWrite) {
  for (const char* text : {"", "plain", "GPU 0 ±2.1 % Größe", "日本語", "🙂"})
    EXPECT_EQ(printing_text(text), text);
  EXPECT_EQ(printing_text("a\nb\tc"), "a?b?c");
  EXPECT_EQ(printing_text("a\nb\tc\r", Lines::many), "a\nb\tc?");
  EXPECT_EQ(printing_text("x\x1b]0;t\a"), "x?]0;t?");
  EXPECT_EQ(printing_text("\xc2\x9b"
                          "2J"),
            "?2J");
  EXPECT_EQ(printing_text("a\xe2\x80\xae"
                          "b\xff"),
            "a?b?");
}

TEST(PrintingJson, IsTheSameDocumentAndPrints) {
  EXPECT_TRUE(rc::check([] {
    const Json json = {{"a", *bytes()}, {*bytes(), 1}};
    const std::string text = json_text(json, 1);
    const std::string out = printing_json(text);
    RC_ASSERT(parse_json(out) == parse_json(text));
    RC_ASSERT(printing_text(out, Lines::many) == out);
  }));
  EXPECT_EQ(printing_json("[\"\xc2\x9b\xf3\xa0\x81\x81\xc3\xa4\"]"),
            "[\"\\u009b\\udb40\\udc41\xc3\xa4\"]");
}

TEST(PrintingPrefix, CutsNoCharacterInTwo) {
  EXPECT_EQ(printing_prefix("gr\xc3\xbc\xc3\x9f", 3), "gr");
  EXPECT_EQ(printing_prefix("gr\xc3\xbc\xc3\x9f", 4), "gr\xc3\xbc");
  EXPECT_EQ(printing_prefix("\xf0\x9f\x9a\x80x", 3), "");
  EXPECT_TRUE(rc::check([] {
    const std::string text = printing_text(*bytes());
    const auto most = *rc::gen::inRange<std::size_t>(0, 40);
    const std::string cut = printing_prefix(text, most);
    RC_ASSERT(text.starts_with(cut));
    RC_ASSERT((cut.size() <= most && cut.size() + 4 > std::min(most, text.size())));
  }));
}

// What a reader of RFC 4180 makes of a cell.
std::string unquoted(std::string cell) {
  if (!cell.starts_with('"')) return cell;
  cell = cell.substr(1, cell.size() - 2);
  for (auto at = cell.find("\"\""); at != cell.npos; at = cell.find("\"\"", at + 1))
    cell.erase(at, 1);
  return cell;
}

TEST(CsvText, IsOneCellAndNoFormula) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = *bytes();
    const std::string cell = unquoted(csv_text(text));
    RC_ASSERT((cell.empty() || std::string("=+-@\t\r\n").find(cell.front()) == std::string::npos));
    RC_ASSERT((cell == printing_text(text) || cell == "'" + printing_text(text)));
  }));
  EXPECT_EQ(csv_text("bert"), "bert");
  EXPECT_EQ(csv_text("train, 1"), "\"train, 1\"");
  EXPECT_EQ(csv_text("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(csv_text("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  for (const char* formula : {"=1", "+1", "-rf", "@SUM(A1)"})
    EXPECT_EQ(csv_text(formula), std::string("'") + formula);
}

}  // namespace
}  // namespace derate
