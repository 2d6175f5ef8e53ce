# The public names of `pullback.amp` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .apply_policy import apply as apply
from .explain import AutocastReport as AutocastReport, CastCall as CastCall, explain as explain
from .grad_scaler import GradScaler as GradScaler
from .report import PrecisionReport as PrecisionReport, report as report
from ..nn.policy import Policy as Policy
from ..ops.autocast import autocast as autocast
from ..optim.transformations.master_weights import stochastic_round as stochastic_round
