#include "service/workloads/launch_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string_view>

#include "base/fd_message.h"
#include "base/safe_path.h"
#include "base/unix_address.h"
#include "service/transport/datagram_socket.h"

namespace derate {

LaunchServer::LaunchServer(std::string path, DatagramSocket socket)
    : path_(std::move(path)), socket_(std::move(socket)) {}

LaunchServer::~LaunchServer() { ::unlink(path_.c_str()); }

Result<std::unique_ptr<LaunchServer>> LaunchServer::create(
    const std::string& path, PersonOf person, std::shared_ptr<HangingThreads> hanging) {
  DatagramSocket socket = TRY(DatagramSocket::bind(
      path, std::move(person), [](int file) { return LaunchPage::check(file).ok(); },
      std::move(hanging)));
  return std::unique_ptr<LaunchServer>(new LaunchServer(path, std::move(socket)));
}

void LaunchServer::serve(const Handler& handler) {
  for (int left = kMostARound; left > 0; --left) {
    char text[64];
    auto message = socket_.receive(text);
    if (!message) return;
    if (!message->file.valid() || !message->sender) continue;
    auto page = LaunchPage::open(message->file);
    if (page.ok())
      handler(*std::move(page),
              {message->sender->pid, message->sender->uid,
               std::make_shared<const ProcessHandle>(std::move(message->process))});
  }
}

Result<void> hand_over_page(const std::string& path, const UniqueFd& page) {
  const sockaddr_un address = TRY(address_of(path));
  TRY(check_socket_file(path).with("no page is handed over"));
  const UniqueFd socket = new_datagram_socket();
  if (!socket.valid()) return socket_error("cannot reach", path, errno);
  constexpr std::string_view kText = "launches";
  if (send_fd_message(socket.get(), std::as_bytes(std::span(kText)), page.get(), MSG_DONTWAIT,
                      &address) < 0)
    return socket_error("cannot reach", path, errno);
  return {};
}

}  // namespace derate
