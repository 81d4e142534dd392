"""Training as on the NPU: loss scales, stored weights, the overflow flag, where runs part."""

from npusim.training.divergence import Divergence as Divergence
from npusim.training.divergence import first_divergence as first_divergence
from npusim.training.flag import flagged as flagged
from npusim.training.loss_scale import LOSS_SCALES as LOSS_SCALES
from npusim.training.loss_scale import LossScale as LossScale
from npusim.training.loss_scale import LossScaleState as LossScaleState
from npusim.training.loss_scale import all_finite as all_finite
from npusim.training.overflow import OverflowComparison as OverflowComparison
from npusim.training.overflow import compare_overflow_modes as compare_overflow_modes
from npusim.training.overflow import with_overflow as with_overflow
from npusim.training.storage import NewValue as NewValue
from npusim.training.storage import StoredState as StoredState
from npusim.training.storage import stored as stored
from npusim.training.storage import stored_in as stored_in
from npusim.training.wrap import ScaledState as ScaledState
from npusim.training.wrap import with_loss_scale as with_loss_scale

__all__ = [
    "LOSS_SCALES",
    "Divergence",
    "LossScale",
    "LossScaleState",
    "NewValue",
    "OverflowComparison",
    "ScaledState",
    "StoredState",
    "all_finite",
    "compare_overflow_modes",
    "first_divergence",
    "flagged",
    "stored",
    "stored_in",
    "with_loss_scale",
    "with_overflow",
]
