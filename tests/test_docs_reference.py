"""The API reference: every public name is in it, what has a signature has a page, with types and an example."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import pullback as pb

pytest.importorskip("sphinx")
EXTENSIONS = Path(__file__).resolve().parent.parent / "docs" / "_extensions"
ENTRY = re.compile(r"^`{6}\{py:\w+\} (\w+).*\n:module: ([\w.]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXTENSIONS))
        import reference

        yield reference


@pytest.fixture(scope="module")
def pages(reference):
    return reference.pages()


@pytest.fixture(scope="module")
def public(reference):
    return reference.Public()


def test_every_public_name_is_described_once(pages, public):
    described = [f"{module}.{name}" for text in pages.values() for name, module in ENTRY.findall(text)]
    assert sorted(described) == sorted(public.things)
    assert {
        f"pullback.{name}" for name in pb.__all__ if not inspect.ismodule(getattr(pb, name))
    } <= public.things.keys()
    assert {
        "pullback.nn.init.xavier_normal",
        "pullback.memory.profile",
        "pullback.optim.schedules.cosine",
    } <= public.things.keys()


def test_functions_and_classes_have_pages_of_their_own(pages, public):
    own = {name for name in public.things if public.page_of(name)}
    assert {public.page_of(name) for name in own} == {page for page in pages if "/" in page}
    for name in own:
        assert [f"{module}.{last}" for last, module in ENTRY.findall(pages[public.page_of(name)])] == [name]
    for name in public.things.keys() - own:
        thing = public.things[name]
        is_callable = inspect.isroutine(thing) or inspect.isclass(thing)
        assert not is_callable or len(public.names_of(name)) > 1 or issubclass(thing, BaseException) or "State" in name


def test_pages_are_told_apart_by_file_systems_that_ignore_case(pages):
    assert len({page.lower() for page in pages}) == len(pages)


def test_lists_lead_to_every_page(pages):
    links = {
        link for page, text in pages.items() if "/" not in page for link in re.findall(r"\]\(([\w./]+)\.md\)", text)
    }
    assert links == {page for page in pages if "/" in page}


def test_functions_show_an_example(pages):
    """Those of `pb.cuda` would need a GPU: the guide has one."""
    functions = [page for page in pages if page.startswith("functions/") and "pullback.cuda." not in page]
    assert [page for page in functions if ">>> " not in pages[page]] == []


def test_no_method_is_described_by_what_loads_it(pages):
    assert "before that module is loaded" not in "".join(pages.values())
    assert "```{py:method} view(" in pages["classes/pullback.Tensor"]


@pytest.mark.parametrize(("name", "wanted"), [
    ("sin", "(x: Array, /) -> Array"), ("add", "(x: Array, y: Array, /) -> Array"),
    ("concat", "(arrays: Sequence[Array], /, axis: int | None = 0, *, dtype=None) -> Array"),
    ("optim.adam", "(lr, betas: tuple[Any, Any] = (0.9, 0.999), eps=1e-08, amsgrad: bool = False, "
                   "weight_decay=0.0) -> ~pullback.optim.Rule"),
    ("nn.Linear", "(inputs: int, outputs: int, bias: bool = True, *, key=None, dtype=float32)"),
])  # fmt: skip
def test_signatures_have_types(reference, public, name, wanted):
    assert reference.signature(public.things[f"pullback.{name}"], public) == wanted


def test_types_of_signatures_follow_the_declarations_of_arrays(reference, public):
    """Every decorator by which the package declares arrays is known to the reference."""
    from typed_signatures import DECORATORS

    from pullback.ops import signatures

    declared = {name for name, thing in vars(signatures).items() if inspect.isfunction(thing) and name != "_same"}
    assert declared <= DECORATORS.keys()
    assert reference.signature(np.sum, public).startswith("(a, axis=None")
