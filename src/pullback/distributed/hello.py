"""What `pullback run -n 4 -m pullback.distributed.hello` runs: each rank says that it is there, and they count."""

from __future__ import annotations

import platform

from .. import distributed


def main() -> None:
    distributed.init()
    found = int(distributed.total(1))
    print(
        f"rank {distributed.rank()} of {distributed.world_size()} on {platform.node()}: {found} ranks met", flush=True
    )


if __name__ == "__main__":
    main()
