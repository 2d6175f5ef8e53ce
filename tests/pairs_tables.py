"""What the matrix says beside its cells: refusals and why, faults that are known, public names that are no features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pullback import errors

#: Every refused cell, one line each: `python tests/pairs_run.py --write` writes it, and refuses what has no reason below.
REFUSED = Path(__file__).parent / "golden" / "data" / "pairs.txt"

ANY = ".*"
CHECKPOINTS = "checkpoint(_verify|_nothing|_contractions|_everything|_named|_offload|_by_size|_sequential)?"
REPLAYS = f"{CHECKPOINTS}|checkpoint_loop"
COMPILED = "jit(_donated|_budget)?|graph_compiled|builder_step"
STAGES = f"{COMPILED}|stage|graph_text|graph_json|graph_gradients|graph_jvp|builder|linearize|linear_transpose"
STREAMS = "dropout_stream|dropout_module|normal_stream"


@dataclass(frozen=True)
class Reason:
    """A refusal that is right: an error with a phrase, raised where the features say so (patterns, in either order)."""

    name: str
    error: type[errors.PullbackError]
    phrase: str
    features: tuple[str, str]
    why: str

    def fits(self, key: tuple[str, str], error: BaseException) -> bool:
        text = " ".join(str(error).split())
        return isinstance(error, self.error) and self.phrase in text and meet(self.features, key)


@dataclass(frozen=True)
class Fault:
    """Cells that are known to be wrong: one feature around the other (patterns), in some modes."""

    outer: str
    inner: str
    modes: str
    what: str

    def fits(self, key: tuple[str, str], mode: str) -> bool:
        return all(
            re.fullmatch(p, s) is not None for p, s in ((self.outer, key[0]), (self.inner, key[1]), (self.modes, mode))
        )


def meet(features: tuple[str, str], key: tuple[str, str]) -> bool:
    a, b = features
    ways = ((a, b), (b, a))
    return any(re.fullmatch(p, key[0]) and re.fullmatch(q, key[1]) for p, q in ways)


REASONS: list[Reason] = []
FAULTS: list[Fault] = []

#: Features that are to come: once the package has them, the matrix must.
NOT_YET = ("autocast",)

#: Public names that are no ops and no features, and why.
NO_FEATURES = {
    "Certificate": "what certify returns",
    "CheckReport": "what gradcheck returns",
    "Checkpoints": "files of a training in a directory; what save and load do to a value is in the matrix",
    "Spec": "a shape and a dtype",
    "asarray": "makes a value",
    "certify": "runs all transforms on a function itself, in minutes; gradcheck stands for it here",
    "errors": "classes of errors",
    "from_dlpack": "makes a value",
    "get_num_threads": "a number; compiled code is the same for any (tests/test_threads_compiled.py)",
    "load_metadata": "reads text",
    "memory": "a namespace; its names are here one by one",
    "register_tree": "declares containers; modules, which are such, are in the matrix",
    "set_num_threads": "a number; compiled code is the same for any (tests/test_threads_compiled.py)",
    "spec_of": "a shape and a dtype",
    "interop": "a namespace; its names are here one by one",
    "tools": "a namespace; its names are here one by one",
    "interop.scipy": "hands derivatives of the matrix to SciPy's optimisers (tests/test_scipy_interop.py)",
    "memory.Difference": "what memory.diff returns",
    "memory.Explanation": "what memory.explain returns",
    "memory.Prediction": "what memory.predict returns",
    "memory.Profile": "what memory.profile returns",
    "memory.assert_no_growth": "counts what is alive before and after any code",
    "memory.diff": "compares two profiles",
    "memory.peak_resident": "a number of the system",
    "memory.release": "gives free pages back to the system",
    "memory.resident": "a number of the system",
    "tools.GradientReport": "what gradient_report returns",
    "tools.draw": "draws a graph that is there",
    "implicit.Report": "what a solve reports",
    "implicit.Solution": "what a solve returns",
    "implicit.custom_fixed_point": "custom_root of f(x) - x",
    "implicit.solve": "the five forms with a report; they are in the matrix",
}
#: Solvers and policies are options of the equations in the matrix, held by tests/test_nonlinear_solvers.py and others.
IMPLICIT_OPTIONS = frozenset(
    "Accelerated Anderson Auto BFGS BiCGStab Bisection Broyden CG Chord Dense GMRES GaussNewton GradientDescent Implicit "
    "LBFGS LSMR LevenbergMarquardt MINRES Neumann Newton NewtonKrylov OneStep PhantomGradient Picard Sparse Unrolled".split()
)
