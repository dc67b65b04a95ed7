// Packets between the stand-in of libdcgm and its host engine: a length of four bytes, then a JSON
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace derate::fakedcgm {

// "127.0.0.1:5555" is TCP; all else is the path of a unix socket. `listens`: as a server, that
// does not block. The descriptor, or -1 with errno.
int open_socket(const std::string& address, bool listens);

// Blocks until all of it is sent. False: the other end is gone.
bool send_packet(int fd, const Json& json);

// Packets that arrive in parts.
class Inbox {
 public:
  // Reads what there is; blocks if the descriptor does. False: the other end is gone, or it sends
  // something else.
  bool read_from(int fd);
  // The oldest whole packet.
  std::optional<Json> take();

 private:
  std::string bytes_;
};

}  // namespace derate::fakedcgm
