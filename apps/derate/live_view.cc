#include "live_view.h"

#include <algorithm>

#include "service/transport/signals.h"
#include "top_read.h"
#include "top_view.h"

namespace derate::cli {
namespace {

// Until then keys are answered at once. False: the view ends.
bool answer_keys(LiveView& view, const TopPicture& picture, Screen& screen, Instant until,
                 Clock& clock) {
  const PollSource signals = signal_source();
  while (stop_signal() == 0) {
    const KeyPress pressed = screen.wait(until - clock.now(), signals.fd);
    signals.serve();
    if (press(view.choice, pressed, picture)) return false;
    if (pressed == key('L' - '@')) screen.redraw();
    if (pressed.code == KeyPress::Code::none && clock.now() >= until) return true;
    screen.draw(top_frame(picture, view.choice, screen.look()));
  }
  return false;
}

}  // namespace

Result<void> show_live(LiveView view, Screen& screen, Clock& clock) {
  TopPicture picture;
  bool known = false;
  for (int round = 0; stop_signal() == 0 && clock.now() < view.end;) {
    if (!view.choice.frozen) {
      const auto looked = view.look(picture);
      if (!looked.ok() && !known) return looked.error();
      if (!looked.ok()) picture.warnings = {"not read: " + looked.error().message};
      if (looked.ok() && *looked) known = true, ++round;
    }
    picture.host = host_name();
    if (!view.choice.frozen) picture.time = time_of_day(clock.wall_now());
    screen.draw(top_frame(picture, view.choice, screen.look()));
    if (view.rounds > 0 && round >= view.rounds) break;
    const Instant until = std::min(view.end, clock.now() + view.pace);
    if (!answer_keys(view, picture, screen, until, clock)) break;
  }
  return {};
}

}  // namespace derate::cli
