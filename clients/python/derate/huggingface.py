"""For Hugging Face: Trainer(callbacks=[derate.huggingface.EnergyCallback()])."""
from transformers import TrainerCallback

from derate.loops import Watch


class EnergyCallback(TrainerCallback):
    """Energy of the training and its epochs (watch.whole, watch.epochs), beats at each step, and
    with a trial its metric, as "eval_loss", after each evaluation. The options are Watch's."""

    def __init__(self, **how):
        self.watch = Watch(**how)

    def on_train_begin(self, args, state, control, **more):
        self.watch.begin()

    def on_epoch_begin(self, args, state, control, **more):
        self.watch.begin_epoch()

    def on_step_end(self, args, state, control, **more):
        if self.watch.step(state.global_step):
            control.should_training_stop = True

    def on_epoch_end(self, args, state, control, **more):
        self.watch.end_epoch()

    def on_evaluate(self, args, state, control, metrics=None, **more):
        if self.watch.validated(metrics):
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **more):
        self.watch.end()
