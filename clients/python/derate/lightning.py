"""A callback for PyTorch Lightning: Trainer(callbacks=[derate.lightning.EnergyCallback()])."""
try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from derate.loops import Watch


class EnergyCallback(Callback):
    """Energy of the training and its epochs (watch.whole, watch.epochs), beats at each batch, and
    with a trial its metric after each validation. The options are Watch's."""

    def __init__(self, **how):
        super().__init__()
        self.watch = Watch(**how)

    def on_train_start(self, trainer, pl_module):
        self.watch.begin()

    def on_train_epoch_start(self, trainer, pl_module):
        self.watch.begin_epoch()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *more):
        if self.watch.step(getattr(trainer, "global_step", None)):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer, pl_module):
        self.watch.end_epoch()

    def on_validation_end(self, trainer, pl_module):
        if getattr(trainer, "sanity_checking", False):
            return
        if self.watch.validated(getattr(trainer, "callback_metrics", None)):
            trainer.should_stop = True

    def on_train_end(self, trainer, pl_module):
        self.watch.end()

    def on_exception(self, trainer, pl_module, exception):
        self.watch.end()
