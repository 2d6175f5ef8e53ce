"""What the matrix says beside its cells: refusals and why, faults that are known, public names that are no features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pullback import errors

#: Every refused cell, one line each, written by `python tests/pairs_run.py --write`; only what has a reason below.
REFUSED = Path(__file__).parent / "golden" / "data" / "pairs.txt"

ANY = ".*"
JIT = "jit(_donated|_budget|_check)?"
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
    #: Without it a cell of the rule may also be right; where it is wrong differs from cell to cell.
    strict: bool = True

    def fits(self, key: tuple[str, str], mode: str) -> bool:
        return all(
            re.fullmatch(p, s) is not None for p, s in ((self.outer, key[0]), (self.inner, key[1]), (self.modes, mode))
        )


def meet(features: tuple[str, str], key: tuple[str, str]) -> bool:
    a, b = features
    ways = ((a, b), (b, a))
    return any(re.fullmatch(p, key[0]) and re.fullmatch(q, key[1]) for p, q in ways)


COPIES = "deepcopy|pickle"
TEXTS = "graph_text|graph_json"
BUILDERS = "builder|builder_step"
TAPES = "backward|workers|gradient_tape|persistent_tape|gradients|optimizer"
QUIET = "no_grad|inference_mode"
SPARSE = "sparse_jacobian|sparse_hessian|jacobian_diagonal|hessian_diagonal"
DRAWS = f"{STREAMS}|numpy_generator|numpy_global|python_random|cupy_random"
CAPTURING = "module|batch_norm|gradients|persistent_tape|gradient_tape|function_class|custom_root"

REASONS = [
    Reason(
        "hooks_traced",
        errors.GraphError,
        "is traced without its backward pass",
        ("module_hooks", ANY),
        "hooks of a program whose arguments are not differentiated would never run",
    ),
    Reason(
        "in_place",
        errors.GraphError,
        "cannot be rebound to this one",
        ("in_place", ANY),
        "values of transforms are immutable",
    ),
    Reason(
        "not_linear", errors.ArgumentError, "clip is not", ("gradient_ops", ANY), "a clipped cotangent has no transpose"
    ),
    Reason(
        "no_spec",
        errors.ArgumentError,
        "is not known without computing it",
        ("function_class|custom_root", ANY),
        "a black box has no shape before it runs",
    ),
    Reason(
        "other_tape",
        errors.ArgumentError,
        "wants a value of this graph",
        (BUILDERS, TAPES),
        "a tape inside makes tensors, which are no values of the graph",
    ),
    Reason(
        "no_such_op",
        errors.ArgumentError,
        "there is no op",
        (TEXTS, "custom_vjp|custom_jvp"),
        "ops with functions in them are read with `ops=`",
    ),
    Reason("no_text", errors.ArgumentError, "cannot be read", ("graph_text", ANY), "a captured tensor has no text"),
    Reason("no_data", errors.ArgumentError, "cannot be serialized", ("graph_json", ANY), "a function is no data"),
    Reason("keyless", errors.ArgumentError, "draws from keys", (ANY, STREAMS), "each call would repeat the numbers"),
    Reason(
        "drawn_once",
        errors.GraphError,
        "would do only once",
        (f"{JIT}|fuse", DRAWS),
        "each call would repeat the numbers",
    ),
    Reason(
        "statistics",
        errors.LeakError,
        "would be set to",
        ("batch_norm", ANY),
        "statistics that differ by element, or are no numbers yet, have no place in a module",
    ),
    Reason(
        "draws_again",
        errors.ConvergenceError,
        "does not fulfil the equation",
        ("custom_root", DRAWS),
        "the user's solver and the equation draw different numbers",
    ),
    Reason(
        "differs_by_element",
        errors.ConversionError,
        "asks for the truth of a value that differs by element",
        ("vmap|vmap_chunks|vmap_named", "python_if"),
        "Python goes one way; the elements of a batch go their own",
    ),
    Reason(
        "closes_over",
        errors.GraphError,
        "used a tracked value that is not an argument of it",
        ("root", "python_if|module_hooks"),
        "an equation that branches on numbers, or has hooks, is not staged, so what it closes over cannot be found",
    ),
    Reason(
        "no_numbers",
        errors.ConversionError,
        "no concrete values",
        (f"{BUILDERS}|memory_predict", "cond|switch|while_loop|python_if"),
        "a branch on numbers that are not there",
    ),
    Reason(
        "no_numbers",
        errors.ConversionError,
        "has no value while the graph is built",
        (BUILDERS, "cond|switch|while_loop|python_if"),
        "a branch on numbers that are not there",
    ),
    Reason(
        "bare_array",
        errors.ConversionError,
        "np.asarray:",
        (f"{BUILDERS}|optimizer", ANY),
        "graphs are fed with numbers, and an Optimizer writes them",
    ),
    Reason(
        "bare_array",
        errors.ArgumentError,
        "a graph is fed bare arrays and",
        (BUILDERS, ANY),
        "graphs are fed with numbers, and an Optimizer writes them",
    ),
    Reason(
        "bare_array",
        errors.ConversionError,
        "pb.tensor: this tensor carries derivatives",
        ("optimizer", ANY),
        "graphs are fed with numbers, and an Optimizer writes them",
    ),
    Reason(
        "bare_array",
        errors.ConversionError,
        "no concrete values",
        ("optimizer", ANY),
        "graphs are fed with numbers, and an Optimizer writes them",
    ),
    Reason(
        "new_leaf",
        errors.ConversionError,
        "pb.tensor: this tensor carries derivatives",
        ("backward|workers", ANY),
        "a leaf made of a tracked tensor would be cut off from it",
    ),
    Reason(
        "no_matrix",
        errors.ConversionError,
        "a SciPy matrix cannot follow",
        (SPARSE, ANY),
        "SciPy's matrices hold numbers",
    ),
    Reason(
        "no_tape",
        errors.GraphError,
        "a SciPy matrix carries no derivatives",
        (SPARSE, ANY),
        "SciPy's matrices hold numbers",
    ),
    Reason(
        "none",
        errors.GraphError,
        "GradientTape: None",
        ("gradient_tape|persistent_tape", QUIET),
        "nothing was recorded",
    ),
    Reason("unrecorded", errors.GraphError, "does not require a gradient", (QUIET, ANY), "nothing was recorded"),
    Reason(
        "captured",
        errors.GraphError,
        "would be lost",
        ("checkpoint_loop|custom_root|root|fixed_point", CAPTURING),
        "a tracked value that is no argument and cannot be found",
    ),
    Reason(
        "kept_in_graph",
        errors.GraphError,
        "met a value of a graph",
        (BUILDERS, "module|batch_norm"),
        "a captured parameter belongs to the tape, a graph has variables",
    ),
    Reason(
        "inference",
        errors.GraphError,
        "made under inference_mode",
        ("inference_mode", ANY),
        "such tensors never have gradients",
    ),
    Reason("no_pickle", errors.GraphError, "a graph cannot be stored", ("pickle", ANY), "files hold numbers"),
    Reason("no_numbers_yet", errors.ConversionError, "pickle:", ("pickle", ANY), "files hold numbers"),
]

FAULTS: list[Fault] = []

#: Features that are to come: once the package has them, the matrix must.
NOT_YET = ("odeint",)

#: Public names that are no ops and no features, and why.
NO_FEATURES = {
    "Certificate": "what certify returns",
    "interop.einops": "teaches another package to take tensors; what it calls are ops",
    "CheckReport": "what gradcheck returns",
    "Checkpoints": "files of a training in a directory; what save and load do to a value is in the matrix",
    "Device": "the name of a device",
    "PendingSave": "what save_async returns",
    "Policy": "autocast for modules (tests/test_autocast.py)",
    "Spec": "a shape and a dtype",
    "StoredArrays": "reads arrays by name; what load does to a value is in the matrix",
    "amp": "a namespace of tools; what they do rests on autocast, which is in the matrix",
    "exchange": "a namespace of writers of files; what they write is run back by tests/test_exchange.py",
    "curvature": "a namespace of functions made of grad, vjp, vmap and programs; tests/test_curvature.py composes them",
    "asarray": "makes a value",
    "batch_max": "max of batch_gather (tests/test_batch_axis.py)",
    "batch_mean": "batch_sum by the size (tests/test_batch_axis.py)",
    "batch_min": "min of batch_gather (tests/test_batch_axis.py)",
    "certify": "runs all transforms on a function itself, in minutes; gradcheck stands for it here",
    "cuda": "facts about GPUs; on one, the tests of the GPU run",
    "device": "the name of a device",
    "data": "hands out rows of arrays; a step with them is in the matrix",
    "distributions": "values whose methods are made of ops; tests/test_distributions.py composes them",
    "digest": "hashes the arrays of a tree",
    "errors": "classes of errors",
    "explain": "says how a call runs",
    "from_dlpack": "makes a value",
    "get_matmul_precision": "a word; it concerns compiled products on a GPU (tests/test_cuda_products.py)",
    "get_num_threads": "a number; compiled code is the same for any (tests/test_threads_compiled.py)",
    "load_metadata": "reads text",
    "memory": "a namespace; its names are here one by one",
    "ode": "a namespace of solvers with derivatives of their own; tests/test_ode.py and test_sde.py compose them",
    "register_tree": "declares containers; modules, which are such, are in the matrix",
    "save_async": "save in another thread (tests/test_saving_async.py), which is in the matrix",
    "set_matmul_precision": "as get_matmul_precision",
    "set_num_threads": "a number; compiled code is the same for any (tests/test_threads_compiled.py)",
    "spec_of": "a shape and a dtype",
    "interop": "a namespace; its names are here one by one",
    "tree": "flattens containers of arrays, as every transform does",
    "tools": "a namespace; its names are here one by one",
    "interop.jax": "makes functions of another library; tests/bridges/jax_bridge.py composes them",
    "interop.torch": "makes functions of another library; tests/bridges/torch_bridge.py composes them",
    "interop.scipy": "hands derivatives of the matrix to SciPy's optimisers (tests/test_scipy_interop.py)",
    "tools.Advice": "what tools.advise finds",
    "tools.AdviceReport": "what tools.advise returns",
    "tools.Comparison": "what tools.compare returns",
    "tools.DigestDifference": "what RunDigest.compare returns",
    "tools.DigestStep": "what a RunDigest has for each op",
    "tools.NanReport": "what tools.find_nan returns",
    "tools.advise": "runs a function in several ways itself (tests/test_advise.py)",
    "tools.compare": "runs a function in two ways itself (tests/test_compare_runs.py)",
    "tools.find_nan": "an instrument around a function of its own, which meets the others in tests/test_find_nan.py",
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
    [
        "Accelerated",
        "Anderson",
        "AtLeast",
        "AtMost",
        "Auto",
        "BFGS",
        "Banded",
        "BiCGStab",
        "Bisection",
        "BlockDiagonal",
        "BlockMatrix",
        "Broyden",
        "CG",
        "Chord",
        "Dense",
        "Diagonal",
        "Dogleg",
        "Equal",
        "GMRES",
        "GaussNewton",
        "GradientDescent",
        "Implicit",
        "InteriorPoint",
        "Kronecker",
        "LBFGS",
        "LSMR",
        "LevenbergMarquardt",
        "LowRankPlusDiagonal",
        "MINRES",
        "Neumann",
        "Newton",
        "NewtonKrylov",
        "NormAtMost",
        "OneStep",
        "PhantomGradient",
        "Picard",
        "PredictorCorrector",
        "Sparse",
        "Structured",
        "Unrolled",
    ]
)
