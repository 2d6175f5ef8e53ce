# The public names of `pullback.curvature` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .statistics import (
    gradient_statistics as gradient_statistics, GradientStatistics as GradientStatistics,
    per_sample_grad as per_sample_grad, per_sample_norms as per_sample_norms,
)
