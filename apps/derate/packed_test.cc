#include "packed.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace derate::cli {
namespace {

// As a reader unpacks it: letters to bytes, then zlib.
std::string unpacked(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned held = 0;
  int bits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const std::size_t value = letters.find(c);
    EXPECT_NE(value, std::string::npos) << c;
    held = held << 6 | static_cast<unsigned>(value);
    if ((bits += 6) >= 8) bytes += static_cast<char>(held >> (bits -= 8) & 255);
  }
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string out(100000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(Packed, ComesBackWhole) {
  std::string text;
  for (int length = 0; length < 40; ++length) {
    EXPECT_EQ(unpacked(packed(text)), text);
    EXPECT_EQ(packed(text).size() % 4, 0u);
    text += static_cast<char>(37 * length);
  }
}

TEST(Packed, WhatRepeatsBecomesSmall) { EXPECT_LT(packed(std::string(50000, 'x')).size(), 200u); }

}  // namespace
}  // namespace derate::cli
