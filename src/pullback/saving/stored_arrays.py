"""`StoredArrays`: the arrays of a file, or of an index, by name, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

from ..arrays.files import name_of_path, open_regular_file
from ..errors import StorageError
from .array_reader import take_arrays
from .contents import STRUCTURE
from .header import read_header
from .shards import is_index, read_from_shard, read_index


@final
class StoredArrays(Mapping[str, Any]):
    """The arrays of a safetensors file, or of an index of several, by name. Opening reads names alone, and each access
    reads one array, or with `mmap` makes a view of its file. Complex arrays of `save` are pairs of real numbers here.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors.index.json")
    >>> pb.save(path, {"layer": {"w": np.ones((2, 2)), "b": np.zeros(2)}}, max_shard_bytes=32)
    >>> arrays = pb.StoredArrays(path)
    >>> list(arrays), arrays["layer.b"]
    (['layer.w', 'layer.b'], array([0., 0.]))
    """

    def __init__(self, path: Any, *, mmap: bool = False) -> None:
        self._path = name_of_path(path, "StoredArrays")
        self._what, self._mmap = f"StoredArrays: {self._path}", mmap
        self._files: dict[str, str | None]
        if is_index(self._path):
            index = read_index(self._path, self._what)
            self._files, metadata = dict(index.files), index.metadata
        else:
            with open_regular_file(self._path, self._what) as file:
                header = read_header(file, self._what)
            self._files, metadata = dict.fromkeys(header.entries), header.metadata
        #: The text that was saved with the arrays.
        self.metadata = {key: text for key, text in metadata.items() if key != STRUCTURE}

    def __repr__(self) -> str:
        return f"StoredArrays({self._path!r}, {len(self)} arrays)"

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __getitem__(self, name: str) -> Any:
        file = self._files[name]
        if file is not None:
            try:
                return read_from_shard(self._path, file, [name], self._mmap, self._what)[name]
            except FileNotFoundError:
                raise StorageError(
                    f"{self._what}: {file} is gone, as after a save that replaced it.\n  Open the index again."
                ) from None
        with open_regular_file(self._path, self._what) as opened:
            header = read_header(opened, self._what)
            return take_arrays(opened, header, [name], self._mmap, self._what)[name]
