"""How many lines of code the package has, by folder: comments, blank lines and docstrings are not counted.

python tests/code_size.py
"""

from __future__ import annotations

import ast
import collections
import io
import tokenize
from pathlib import Path

__all__ = ["count_code", "count_comments", "main"]

ROOT = Path(__file__).parent.parent / "src" / "pullback"
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def count_code(text: str) -> int:
    """Lines with a token that is no comment, less the lines of docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def count_comments(text: str) -> int:
    return sum(t.type == tokenize.COMMENT for t in tokenize.generate_tokens(io.StringIO(text).readline))


def main() -> None:
    code: collections.Counter[str] = collections.Counter()
    comments: collections.Counter[str] = collections.Counter()
    files: collections.Counter[str] = collections.Counter()
    for path in [*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")]:  # the stub is the list of public names
        text, folder = path.read_text(), path.relative_to(ROOT).parts[0]
        code[folder] += count_code(text)
        comments[folder] += count_comments(text)
        files[folder] += 1
    for folder, lines in code.most_common():
        show(lines, comments[folder], files[folder], folder)
    show(code.total(), comments.total(), files.total(), "in all")


def show(lines: int, comments: int, files: int, folder: str) -> None:
    print(f"{lines:7,} lines of code, {comments / lines:.3f} comments a line, {files:4} files: {folder}")


if __name__ == "__main__":
    main()
