"""Methods of tensors under PyTorch's names: values as PyTorch's, eager, traced, batched, with derivatives."""

import inspect

import numpy as np
import pytest

import pullback as pb

A = np.arange(6.0).reshape(2, 3) - 2.5
B = np.arange(12.0).reshape(3, 4) / 7
#: A call on x = A, and its value in plain NumPy.
CALLS = {
    "x.to(pb.float32)": A.astype(np.float32),
    "x.to('float32')": A.astype(np.float32),
    "x.to(dtype=pb.float32, device='cpu')": A.astype(np.float32),
    "x.to(other)": A.astype(np.float32),
    "x.to('cpu')": A,
    "x.cpu()": A,
    "x.float()": A.astype(np.float32),
    "x.double()": A,
    "x.half()": A.astype(np.float16),
    "x.long()": A.astype(np.int64),
    "x.int()": A.astype(np.int32),
    "x.bool()": A.astype(bool),
    "x.view(3, 2)": A.reshape(3, 2),
    "x.view(-1)": A.ravel(),
    "x.view((3, -1))": A.reshape(3, 2),
    "x.permute(1, 0)": A.T,
    "x.permute((1, 0))": A.T,
    "x.t()": A.T,
    "x.unsqueeze(0)": A[None],
    "x.unsqueeze(-1)": A[..., None],
    "x.unsqueeze(1).expand(-1, 4, 3)": np.broadcast_to(A[:, None], (2, 4, 3)),
    "x.expand(5, -1, -1)": np.broadcast_to(A, (5, 2, 3)),
    "x.expand((5, 2, 3))": np.broadcast_to(A, (5, 2, 3)),
    "x[:1].expand_as(x)": np.broadcast_to(A[:1], (2, 3)),
    "x.clamp(-1, 1)": A.clip(-1, 1),
    "x.clamp(min=0)": A.clip(0, None),
    "x.clamp(max=0)": A.clip(None, 0),
    "x.pow(2)": A**2,
    "x.matmul(y)": A @ B,
    "x.mm(y)": A @ B,
    "x.unsqueeze(0).bmm(y[None])": (A @ B)[None],
    "x.sigmoid()": 1 / (1 + np.exp(-A)),
    "x.relu()": A.clip(0, None),
    "x.softmax(0)": np.exp(A) / np.exp(A).sum(0),
    "x.softmax(dim=1)": np.exp(A) / np.exp(A).sum(1, keepdims=True),
    "x.log_softmax(-1)": A - np.log(np.exp(A).sum(1, keepdims=True)),
    "x.isnan()": np.isnan(A),
    "x.isfinite()": np.isfinite(A),
    "x.eq(0.5)": A == 0.5,
    "x.ne(0.5)": A != 0.5,
    "x.lt(0.5)": A < 0.5,
    "x.le(0.5)": A <= 0.5,
    "x.gt(0.5)": A > 0.5,
    "x.ge(0.5)": A >= 0.5,
    "x.masked_fill(mask, 7.0)": np.where(A > 0, 7.0, A),
    "x.masked_fill(mask=mask, value=7.0)": np.where(A > 0, 7.0, A),
    "x.gather(1, index)": np.take_along_axis(A, np.array([[0, 2], [1, 1]]), 1),
    "x.gather(dim=1, index=index)": np.take_along_axis(A, np.array([[0, 2], [1, 1]]), 1),
    "x.index_select(1, rows)": A[:, [2, 0]],
    "x.unbind()[1]": A[1],
    "x.unbind(dim=1)[2]": A[:, 2],
    "x.topk(2)[0]": -np.sort(-A, 1)[:, :2],
    "x.topk(1, dim=0, largest=False)[0]": A[:1],
    "x.contiguous()": A,
    "x.clone()": A,
    "x.flatten(1)": A,
    "x.unsqueeze(2).flatten(1)": A,
    "x.unsqueeze(0).flatten(0, 1)": A,
    "x.flatten()": A.ravel(),
}
NAMES = {
    "pb": pb, "y": B, "mask": A > 0, "index": np.array([[0, 2], [1, 1]]), "rows": np.array([2, 0]),
    "other": pb.tensor(np.ones(1, np.float32)),
}  # fmt: skip
SMOOTH = [c for c, v in CALLS.items() if v.dtype == np.float64]


def call(text, x):
    return eval(text, {**NAMES, "x": x})


def bare(x):
    return np.asarray(x.detach().numpy() if isinstance(x, pb.Tensor) else x)


@pytest.mark.parametrize("text", CALLS)
def test_values_are_those_of_pytorch(text):
    found = call(text, pb.tensor(A))
    assert found.dtype == CALLS[text].dtype
    np.testing.assert_allclose(bare(found), CALLS[text], rtol=1e-12)


def test_methods_in_compiled_functions():
    wanted = {text: value for text, value in CALLS.items() if "device" not in text}
    found = pb.jit(lambda x: [call(text, x) for text in wanted])(A)
    for (text, value), out in zip(wanted.items(), found, strict=True):
        np.testing.assert_allclose(bare(out), value, rtol=1e-12, err_msg=text)


@pytest.mark.parametrize("text", CALLS)
def test_methods_in_batches(text):
    batch = np.stack([A, A + 0.25, -A])
    found = pb.vmap(lambda x: call(text, x))(batch)
    for row, x in zip(bare(found), batch, strict=True):
        np.testing.assert_allclose(row, bare(call(text, pb.tensor(x))), rtol=1e-12)


@pytest.mark.parametrize("text", SMOOTH)
def test_methods_have_derivatives(text):
    report = pb.gradcheck(lambda x: pb.sum(call(text, x) ** 2 * 0.5 + call(text, x)), A)
    assert report, report


@pytest.mark.parametrize("text", ["x.to(pb.float64)", "x.cpu()", "x.double()", "x.contiguous()", "x.to(x)"])
def test_what_changes_nothing_is_the_tensor_itself(text):
    x = pb.tensor(A, requires_grad=True)
    assert call(text, x) is x
    assert x.to(pb.float64, copy=True) is not x


def test_sizes_are_numbers():
    x = pb.tensor(A)
    assert (x.numel(), x.dim()) == (6, 2)
    assert pb.jit(lambda x: x * x.numel() + x.dim())(np.ones(3)).tolist() == [4.0] * 3


def test_a_clone_is_part_of_the_graph_and_a_variable_of_its_own():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    y = x.clone()
    y += 1
    pb.sum(y * y).backward()
    assert x.tolist() == [1.0, 2.0]
    assert x.grad.tolist() == [4.0, 6.0]


def test_nodes_name_the_line_of_the_user():
    x = pb.tensor(A, requires_grad=True)
    for y in (x.view(-1), x.to(pb.float32), x.clamp(min=0), x.softmax(0), x.unsqueeze(0), x.pow(2), x.eq(1)):
        assert y.node is None or "test_tensor_methods" in y.node.where()


def test_mistakes_are_explained():
    x = pb.tensor(A)
    with pytest.raises(pb.errors.ShapeError, match="at most two axes"):
        x.unsqueeze(0).t()
    with pytest.raises(TypeError, match=r"wants a shape, got .*\n  To convert elements use x\.astype"):
        x.view(pb.float32)
    with pytest.raises(pb.errors.DeviceError, match="no device 'tpu'"):
        x.to("tpu")
    with pytest.raises(pb.errors.PullbackError):
        x.view(4, 4)


def test_a_view_cannot_be_written_to():
    x = pb.tensor(A)
    y = x.unsqueeze(0)
    with pytest.raises(pb.errors.GraphError, match="this is a slice"):
        y += 1


def test_methods_have_signatures_and_docstrings():
    assert str(inspect.signature(pb.Tensor.unsqueeze)).startswith("(self")
    assert list(inspect.signature(pb.Tensor.topk).parameters) == ["self", "k", "dim", "largest", "sorted"]
    assert all(
        (getattr(pb.Tensor, name).__doc__ or "").strip() for name in ("to", "view", "unsqueeze", "float", "numel")
    )
