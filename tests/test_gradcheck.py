"""`gradcheck` and `gradgradcheck` pass what is right, fail what is wrong, and never pass on what is not finite."""

import math

import numpy as np
import pytest

import pullback as pb
from pullback import errors

X, Y = np.array([0.3, 1.2, -0.7]), np.array([[0.5], [2.0]])
BOTH = [pb.gradcheck, pb.gradgradcheck]

RIGHT = {
    "sum of squares": (lambda x: pb.sum(x * x), X),
    "linear": (lambda x: 3.0 * x, X),
    "add": (lambda x, y: x + y, X, Y),
    "constant": (lambda x: pb.tensor([1.0, 2.0]) + 0.0 * x[:2], X),
    "no path to an input": (lambda x, y: pb.sin(x), X, Y),
    "several outputs": (lambda x, y: (pb.sin(x), x * y), X, Y),
    "outputs as a list": (lambda x: [pb.sin(x), x], X),
    "0-d": (lambda x: x * x * x, np.array(0.5)),
    "empty": (lambda x: x * 2, np.zeros((0, 2))),
    "integer beside it": (lambda x, i: x[i], X, np.array([2, 0, 2])),
    "boolean beside it": (lambda x, c: pb.where(c, x, x * x), X, np.array([True, False, True])),
    "complex": (lambda z: z * pb.conj(z) * z, np.array([0.5 + 1j, -1.0 - 0.3j])),
    "complex and real": (lambda z, x: z * x, np.array([0.5 + 1j]), np.array([2.0])),
    "not contiguous": (lambda x: pb.exp(x), np.arange(6.0).reshape(2, 3).T[::-1] / 6),
    "written in place": (lambda x: write(x), X),
    "a boolean output too": (lambda x: (x > 0, pb.exp(x)), X),
}  # fmt: skip


def write(x):
    y = x * 1.0
    y[0] = x[1] * x[2]
    y += x
    return y


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("check", BOTH)
def test_right_derivatives_pass(case, check):
    f, *points = RIGHT[case]
    report = check(f, *points)
    assert report.ok, str(report)
    assert report
    assert "agree" in str(report)


WRONG = {
    "half hidden": (lambda x: x * x.detach(), X),
    "hidden": (lambda x: pb.sin(x.detach()) + 0.0 * x, X),
    "hidden altogether": (lambda x: pb.sin(x.detach()), X),
    "one input hidden": (lambda x, y: pb.sin(x) * pb.exp(y.detach()), X, Y),
    "scaled a little": (lambda x: pb.exp(x) * 1.0001 - pb.exp(x.detach()) * 0.0001, X),
    "complex half": (lambda z: pb.real(z) * 1.0 + 0.0 * pb.imag(z) + pb.imag(z.detach()), np.array([0.5 + 1j])),
    "one element of many": (lambda x: pb.where(np.arange(50) == 37, x.detach() * 2, x), np.linspace(0.1, 1, 50)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_derivatives_fail(case):
    f, *points = WRONG[case]
    report = pb.gradcheck(f, *points)
    assert not report.ok
    assert not report
    assert report.error > 1
    assert "DISAGREE" in str(report)


def test_derivative_that_is_wrong_only_to_second_order_is_found():
    def f(x):
        slope = pb.exp(x).detach()
        return pb.exp(x).detach() + slope * (x - x.detach())

    assert pb.gradcheck(f, X).ok
    assert not pb.gradgradcheck(f, X).ok


def test_report_names_the_worst_element():
    report = pb.gradcheck(lambda x, y: pb.sum(x) + pb.where(np.arange(4) == 2, y.detach() * 7, y), X, np.ones(4))
    place, index, analytic, numeric = report.worst
    assert (place, index, report.checked) == (1, (2,), 7)
    assert analytic != numeric
    for part in ("input 1", "[2]", "7 elements"):
        assert part in str(report)


NOT_FINITE = {
    "x/x at 0": (lambda x: x / x, np.array([0.0, 1.0])),
    "log at 0": (pb.log, np.array([0.0])),
    "sqrt at 0": (pb.sqrt, np.array([0.0])),
    "NaN in": (lambda x: x * 2, np.array([math.nan])),
    "inf in": (lambda x: x * 2, np.array([math.inf])),
    "NaN out": (lambda x: x * math.nan, X),
    "inf out": (lambda x: x * math.inf, X),
    "NaN constant added": (lambda x: pb.sum(x) + math.nan, X),
    "overflow": (lambda x: pb.exp(x * 1e4), X),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_FINITE)
@pytest.mark.parametrize("check", BOTH)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_what_is_not_finite_never_passes(case, check):
    f, point = NOT_FINITE[case]
    f = f if check is pb.gradcheck else lambda x: NOT_FINITE[case][0](x) * x  # something for the second order to see
    report = check(f, point)
    assert not report.ok
    assert report.error == math.inf


@pytest.mark.parametrize("check", BOTH)
@pytest.mark.parametrize(
    ("name", "value"),
    [("eps", 0), ("eps", -1e-6), *((n, v) for n in ("eps", "rtol", "atol") for v in (-1.0, math.nan, math.inf))],
)
def test_numbers_that_would_let_anything_pass_are_refused(check, name, value):
    with pytest.raises(errors.ArgumentError, match=name):
        check(lambda x: x, X, **{name: value})


@pytest.mark.parametrize("check", BOTH)
def test_tolerance_zero_is_meant(check):
    assert not check(lambda x: pb.exp(x), X, rtol=0.0, atol=0.0).ok


@pytest.mark.parametrize("check", BOTH)
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_small_dtypes_are_refused(check, dtype):
    with pytest.raises(errors.DtypeError, match=dtype):
        check(lambda x: x, X.astype(dtype))


@pytest.mark.parametrize("check", BOTH)
def test_nothing_to_check_is_an_error(check):
    with pytest.raises(errors.DtypeError, match="nothing to check"):
        check(lambda i: i * 2.0, np.array([1, 2]))
    with pytest.raises(errors.DtypeError, match="no floating-point tensor"):
        check(lambda x: x > 0, X)


@pytest.mark.parametrize("check", BOTH)
def test_output_that_changes_its_shape_is_an_error(check):
    with pytest.raises(errors.ShapeError, match="shape"):
        check(lambda x: x[np.asarray(x.detach()) > 1.0], np.array([1.0, 2.0]))


@pytest.mark.parametrize("check", BOTH)
def test_same_answer_twice_and_nothing_left_behind(check):
    x = pb.tensor(X, requires_grad=True)
    x.grad = np.array([13.0, -17.0, 19.0])
    w = pb.tensor(2.0, requires_grad=True)
    reports = [check(lambda t: pb.sin(t) * w, x) for _ in range(2)]
    assert reports[0] == reports[1]
    assert reports[0].ok, str(reports[0])
    assert x.grad.tolist() == [13.0, -17.0, 19.0]
    assert w.grad is None
    assert X.tolist() == [0.3, 1.2, -0.7]


@pytest.mark.parametrize("check", BOTH)
def test_checks_run_where_recording_is_off(check):
    with pb.no_grad():
        assert check(lambda x: pb.exp(x), X).ok
        assert not pb.is_grad_enabled()


@pytest.mark.parametrize("check", BOTH)
def test_error_in_the_function_comes_through(check):
    with pytest.raises(ZeroDivisionError):
        check(lambda x: 1 / 0, X)


def test_weights_keep_errors_from_cancelling():
    """Two wrong elements whose errors sum to zero are still found, because no two weights are the same."""

    def f(x):
        wrong = x.detach() * np.array([1.0, -1.0])
        return x * 2.0 + wrong - wrong.detach() + (x - x.detach()) * np.array([0.5, -0.5])

    assert not pb.gradcheck(f, np.array([1.0, 1.0])).ok


@pytest.mark.parametrize("points", [4, 6])
@pytest.mark.parametrize("check", BOTH)
@pytest.mark.parametrize("fast", [False, True])
def test_more_points_and_single_directions_judge_alike(points, check, fast):
    for name, (f, *args) in RIGHT.items():
        report = check(f, *args, points=points, fast=fast, rtol=1e-7, atol=1e-8)
        assert report.ok, f"{name}: {report}"
    for name, (f, *args) in WRONG.items():
        assert not pb.gradcheck(f, *args, points=points, fast=fast).ok, name


def test_differences_have_the_digits_of_their_points():
    x = np.array([0.3, 1.2, 2.1])
    errors_found, estimates = [], []
    for points in (2, 4, 6):
        report = pb.gradcheck(lambda x: pb.exp(pb.sin(3 * x)), x, points=points)
        _, _, rule, numeric = report.worst
        errors_found.append(abs(rule - numeric) / abs(rule))
        estimates.append(report.estimate / abs(rule))
    assert errors_found[0] < 1e-8
    assert errors_found[1] < 1e-10
    assert errors_found[2] < 1e-11
    for found, estimate in zip(errors_found[1:], estimates[1:], strict=True):
        assert found < estimate < 1e-4
    for order in (2, 4, 6):  # a large step shows the order of the formula
        size = [pb.gradcheck(pb.exp, np.array(0.5), points=order, eps=h, rtol=1, atol=1).worst for h in (0.2, 0.1)]
        (far, near) = (abs(w[2] - w[3]) for w in size)
        assert abs(math.log2(far / near) - order) < 0.1


def test_a_direction_is_one_comparison_and_sees_complex_numbers():
    z = np.array([0.5 + 1j, -1.0 - 0.3j])
    report = pb.gradcheck(lambda z, x: pb.conj(z) * z * x, z, np.array([2.0, 3.0]), fast=True)
    assert report.ok
    assert report.checked == 2
    assert report.worst[1] == ()
    assert not pb.gradcheck(lambda z: pb.real(z) + pb.imag(z.detach()), z, fast=True)
    with np.errstate(all="ignore"):
        wrong = pb.gradcheck(lambda x: pb.where(np.arange(3) == 1, pb.sqrt(x), x), np.array([1.0, 0.0, 2.0]))
    assert wrong.worst[1] == (1,), "one element that is not finite is not blamed on others"


@pytest.mark.parametrize("points", [0, 3, 8, "2", [2], None, 4.0])
def test_points_that_there_are_none_of(points):
    with pytest.raises(errors.ArgumentError, match="points is 2, 4 or 6"):
        pb.gradcheck(pb.sin, X, points=points)


def test_a_step_out_of_the_domain_is_named():
    root = lambda x: pb.sum(pb.sqrt(x))  # noqa: E731
    with np.errstate(invalid="ignore"):
        found = pb.gradcheck(root, np.array([1e-3]), points=6)
    assert not found
    assert "give a smaller eps" in str(found)
    assert pb.gradcheck(root, np.array([1e-3]), points=6, eps=1e-4, rtol=1e-5)
