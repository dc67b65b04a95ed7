// Packets between the stand-in of libdcgm and its host engine: a length of four bytes, then a JSON
// text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace derate::fakedcgm {

// "127.0.0.1:5555" is TCP on this machine; all else is the path of a unix socket.
// Errors: invalid_argument for a port or a path that is none; io.
Result<UniqueFd> connect_to(const std::string& address);
// A socket that does not block. It replaces one that nobody listens at, and no other file.
// Errors: as above; busy where somebody listens.
Result<UniqueFd> listen_at(const std::string& address);

// Blocks until all of it is sent. False: the other end is gone.
bool send_packet(int fd, const nlohmann::ordered_json& json);

// Packets that arrive in parts.
class Inbox {
 public:
  // Reads what there is; blocks if the descriptor does. False: the other end is gone, or it sends
  // something else.
  bool read_from(int fd);
  // The oldest whole packet.
  std::optional<nlohmann::ordered_json> take();

 private:
  std::string bytes_;
};

}  // namespace derate::fakedcgm
