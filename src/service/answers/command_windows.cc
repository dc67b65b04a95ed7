#include "service/answers/command_windows.h"

namespace derate {

Result<void> CommandWindows::open(const std::string& path, Clock& clock) {
  server_ = TRY(ControlServer::create(path, clock, Audience::everyone));
  return {};
}

std::vector<std::string> CommandWindows::listen() {
  if (!is_open()) return {};
  lines_.serve(*server_);
  return service_.take_wanted();
}

void CommandWindows::answer() {
  if (!is_open()) return;
  service_.settle();
  lines_.answer_late(*server_);
}

}  // namespace derate
