"""What sums over ranks and data-parallel steps took on a machine of 16 cores, and what the model makes of it:
`python docs/figures/scaling.py` writes the SVG files.
"""

from pathlib import Path

from pullback.arrays.text import format_bytes, format_seconds
from pullback.distributed.collective_law import Measurement
from pullback.distributed.predict import predict
from pullback.distributed.recorded_step import GradientTime, Step
from pullback.distributed.world_model import WorldModel
from pullback.tools.render.svg_plots import draw_curves

HERE = Path(__file__).parent
KIB = 1024
#: Microseconds of sums of float32 arrays in memory that ranks share, by ranks; one core a rank, the least of many.
SHARED_SIZES = [1, 16, 256, 1024, 4096, 16384, 65536]
SHARED = {
    2: [5, 5, 11, 29, 293, 1319, 8439],
    4: [10, 11, 28, 133, 534, 2203, 8676],
    8: [18, 20, 41, 157, 440, 2188, 10122],
    16: [33, 34, 56, 149, 611, 2938, 13984],
}
#: The same by messages on that machine: all to all, additions in a fixed order, all gather.
MESSAGE_SIZES = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536]
MESSAGES = {
    2: [8.4, 9.3, 16.8, 25.2, 44.0, 193.5, 912.5, 3717.6, 24945.8],
    4: [19.6, 21, 28, 53.1, 113.8, 573.7, 2279.5, 10780.4, 54704.1],
    8: [31.2, 34.4, 41.9, 85.3, 137.9, 527.9, 2024, 13236.6, 56970.4],
    16: [52.7, 56.2, 76.5, 113.4, 231.5, 712.5, 3239.5, 18576.3, 79576.4],
}
#: Steps of networks (784-256-128-10 with batches of 64 and 512; 1024-1024-1024-1024 with 256), summed in shared
#: memory after the backward pass: seconds without sums, bytes of gradients, and the measured efficiency, by ranks.
STEPS = {
    "0.9 MB, 1.1 ms alone": (0.0011, 940_584, {2: 0.86, 8: 0.87, 16: 0.68}),
    "0.9 MB, 6 ms alone": (0.006, 940_584, {2: 0.98, 8: 0.98, 16: 0.99}),
    "12 MB, 50 ms alone": (0.050, 12_595_200, {4: 0.95, 8: 0.95, 16: 0.88}),
}
RANKS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]


def fit(table: dict[int, list[float]], sizes: list[int], ranks: list[int], level: str) -> WorldModel:
    """The model of those rows of a table that have some numbers of ranks."""
    return WorldModel(
        tuple(
            Measurement(n, size * KIB, us * 1e-6, level=level)
            for n in ranks
            for size, us in zip(sizes, table[n], strict=True)
        ),
        cores=16,
    )


def step_of(compute: float, size: int) -> Step:
    return Step(0.0, compute, gradients=(GradientTime("all", size, compute),))


def on_white(svg: str) -> str:
    """A picture that is seen on a dark page too."""
    head, rest = svg.split("\n", 1)
    return f'{head}\n<rect width="100%" height="100%" fill="white"/>\n{rest}\n'


def draw_sums() -> str:
    """Sums in shared memory: the law of 2, 4 and 8 ranks, and what was measured."""
    law = fit(SHARED, SHARED_SIZES, [2, 4, 8], "node").law(2)
    shown = {format_bytes(size * KIB): i for i, size in enumerate(SHARED_SIZES) if size in (1, 256, 4096, 65536)}
    picture = draw_curves(
        {name: (RANKS, [law.seconds(n, SHARED_SIZES[i] * KIB) for n in RANKS]) for name, i in shown.items()},
        points={name: (list(SHARED), [row[i] * 1e-6 for row in SHARED.values()]) for name, i in shown.items()},
        title="A sum over ranks: fitted to 2, 4, 8 ranks; dots are measured",
        x_label="ranks",
        y_label="seconds",
        text=format_seconds,
        log=True,
        log_x=True,
        dashed_from=8,
        dashed_label="extrapolated",
    )
    return on_white(picture)


def draw_steps() -> str:
    """Efficiencies of steps, by the law of all ranks that were measured."""
    model = fit(SHARED, SHARED_SIZES, [2, 4, 8, 16], "node")
    found = {name: predict(step_of(*step[:2]), RANKS, model=model, meetings=1) for name, step in STEPS.items()}
    picture = draw_curves(
        {name: ([p.ranks for p in row], [p.efficiency for p in row]) for name, row in found.items()},
        points={name: (list(measured), list(measured.values())) for name, (_, _, measured) in STEPS.items()},
        title="Efficiency of data-parallel steps; dots are measured",
        x_label="ranks",
        y_label="efficiency",
        log_x=True,
        cover=(0.0, 1.0),
        dashed_from=16,
        dashed_label="extrapolated",
    )
    return on_white(picture)


FIGURES = {"distributed-sums": draw_sums, "distributed-scaling": draw_steps}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (HERE / f"{name}.svg").write_text(draw())
        print(f"docs/figures/{name}.svg")
