# The public names of `pullback.amp` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .grad_scaler import GradScaler as GradScaler
from .report import PrecisionReport as PrecisionReport, report as report
from ..optim.transformations.master_weights import stochastic_round as stochastic_round
