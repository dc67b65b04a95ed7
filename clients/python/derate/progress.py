"""Beats: how much work is done."""
from derate.once import tell


def beat(done=None, phase=None, max_loss=None, gpu=None):
    """As derate_beat.beat(): so much of the work is done. True when somebody listens."""
    try:
        import derate_beat
        heard = derate_beat.beat(done, phase, max_loss, gpu)
    except Exception as error:
        tell("beat", f"no beat is sent: {error}")
        return False
    if not heard:
        tell("beat", "no beat is heard: derated is not running")
    return heard
