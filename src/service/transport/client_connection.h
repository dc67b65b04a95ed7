// A caller's connection to a socket of the daemon: lines that come in, lines that go out. Nothing
// here waits for a caller.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/operations.h"
#include "base/clock.h"
#include "base/process_handle.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/transport/socket_closer.h"

namespace derate {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  std::uint64_t connection = 0;  // from 1 on; no two have the same
  std::vector<gid_t> groups = {};
  std::optional<Role> role = {};  // what it may do; empty: what callers of its socket may
  std::string token = {};         // name of the token that admitted it; empty: its user did
  // The person whose share of places and time it takes; empty: the user (CallerShares).
  std::optional<uid_t> person = {};
  bool keeps_place = false;  // its place may be a reserved one (kKeptPlaces)
  // The process that connected; null: not known.
  SharedHandle process = {};

  uid_t share() const { return person.value_or(uid); }
  bool has_kept_place() const { return keeps_place || uid == 0; }
};

// For logs and as who assigned something: "uid 0"; "token dashboard".
std::string caller_name(const Peer& peer);

// The whole answer: ok and its fields, or what was wrong, its exit code and the word for its kind
// (word_of()).
nlohmann::ordered_json whole_answer(const Result<nlohmann::ordered_json>& answer);

// Tells the caller why it is not served; what the socket does not take at once is lost.
void send_refusal(const UniqueFd& socket, const Error& error);

struct ClientConnection {
  UniqueFd socket;  // does not block
  Peer peer = {};
  std::string in = {}, out = {};
  std::size_t end = std::string::npos;  // of the next request in `in`
  Instant heard{};
  std::uint32_t watched = 0;  // events
  int left = 0;               // requests in this round of service
  bool ready = true;          // there may be something to read or to write
  bool waits = false;         // for an answer that comes later
  bool ended = false;         // will say no more
  bool broken = false;        // no answer can be sent to it any more

  bool has_request() const { return end != std::string::npos; }
  bool takes_requests() const;
  bool has_work() const;
  bool has_said_all() const;
  bool is_idle() const { return !waits && in.empty() && out.empty(); }

  // Writes pending answers and reads what has come. Returns the next request, which is valid until
  // reply(). A request of more than `longest` bytes is refused. Files that come break the
  // connection.
  std::optional<std::string_view> next_request(std::size_t longest, const SocketCloser& closer,
                                               const Clock& clock);
  // To the request; empty: reply_late() has it.
  void reply(std::optional<std::string> text);
  void reply_late(const std::string& text);
  // Has `epoll` tell of what it can go on with.
  void watch(const UniqueFd& epoll);

 private:
  void read(std::size_t longest, const SocketCloser& closer, const Clock& clock);
  void write();
};

}  // namespace derate
