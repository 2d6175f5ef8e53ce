"""LLVM text that reads Python's objects: where their fields are, functions that load and store them, and the numbers
filled into a text.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The fields of NumPy's array object and of lists, on a 64-bit machine with the reference count in front.
FIELDS = {
    "TYPE": 8, "DATA": 16, "RANK": 24, "SHAPE": 32, "BASE": 48, "DESCR": 56, "FLAGS": 64, "WEAK": 72, "SIZE": 16,
    "ITEMS": 24,
}  # fmt: skip

#: One of an object's fields, at an offset in bytes; and words of memory, or pointers, by their number.
ACCESSORS = """
define internal ptr @field(ptr %object, i64 %at) alwaysinline {
  %place = getelementptr i8, ptr %object, i64 %at
  %found = load ptr, ptr %place
  ret ptr %found
}
define internal i64 @word(ptr %words, i64 %number) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %number
  %found = load i64, ptr %place
  ret i64 %found
}
define internal ptr @pointer(ptr %words, i64 %number) alwaysinline {
  %place = getelementptr ptr, ptr %words, i64 %number
  %found = load ptr, ptr %place
  ret ptr %found
}
"""


def fill_in(text: str, numbers: Mapping[str, int]) -> str:
    """A text with each `$NAME` replaced by its number."""
    for name in sorted(numbers, key=len, reverse=True):
        text = text.replace(f"${name}", str(numbers[name]))
    return text
