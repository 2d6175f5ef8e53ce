"""`pullback run --elastic 2:4`: a job that loses a rank starts again, with as many ranks as are left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import ArgumentError
from ..ops.collective.world import name_ranks
from .job import Outcome
from .job_reports import LEAST, Report
from .launch import launch_once

#: How often a job may start again without having written a checkpoint in between.
RESTARTS = 10


class Sizes(NamedTuple):
    """With how few and how many ranks a job may run."""

    least: int
    most: int


def parse_sizes(text: str) -> Sizes:
    """ "2:4" as sizes.

    >>> parse_sizes("2:4")
    Sizes(least=2, most=4)
    """
    least, _, most = text.partition(":")
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise ArgumentError(f'--elastic: wants the least and the most ranks, as in "2:4", got {text!r}.')
    return Sizes(int(least), int(most))


def choose_first(sizes: Sizes, ranks: int) -> int:
    """With how many ranks a job starts: the most, or as many as were asked for."""
    if ranks and not sizes.least <= ranks <= sizes.most:
        raise ArgumentError(f"-n {ranks}: --elastic {sizes.least}:{sizes.most} wants a number in that range.")
    return ranks or sizes.most


def run_elastic(
    sizes: Sizes,
    ranks: int,
    arguments: Sequence[str],
    *,
    hosts: str = "",
    restarts: int = RESTARTS,
    start: Callable[..., Outcome] = launch_once,
) -> int:
    """Run a script on ranks, and again on those that are left whenever the job ends since a rank was lost. It is the
    script that goes on where it was: by loading what it saved. Returns the exit status of the last job.
    """
    ranks, idle = choose_first(sizes, ranks), 0
    environment = {**os.environ, LEAST: str(sizes.least)}
    while True:
        outcome = start(ranks, arguments, hosts=hosts, environment=environment)
        if not outcome.lost:
            return outcome.status
        hosts = drop_hosts(hosts, ranks, [report.rank for report in outcome.lost])
        left = max(ranks - len(outcome.lost), sizes.least)
        what = describe_lost(outcome.lost, ranks)
        if (hosts and count_slots(hosts) < left) or hosts == NO_HOSTS:
            _say(f"{what} The machines that are left have room for less than {sizes.least} ranks: the job ends.")
            return outcome.status
        idle = 1 if outcome.saved else idle + 1
        if idle > restarts:
            _say(f"{what} It was started again {restarts} times without a checkpoint from distributed.save: it ends.")
            return outcome.status
        _say(f"{what} The job starts again with {left} rank{'s' if left > 1 else ''}.")
        ranks = left


def describe_lost(lost: Sequence[Report], ranks: int) -> str:
    """Which ranks of how many were lost, and what they were."""
    named = ", ".join(f"process {report.process} on {report.host}" for report in lost[:4])
    more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
    verb = "were" if len(lost) > 1 else "was"
    return f"{name_ranks([report.rank for report in lost])} of {ranks} {verb} lost ({named}{more})."


#: What is left of hosts if none is; no hosts at all ("") mean this machine.
NO_HOSTS = ","


def drop_hosts(hosts: str, ranks: int, lost: Sequence[int]) -> str:
    """The machines that are left, if one that has lost all of its ranks counts as lost. Ranks fill the machines in
    order.

    >>> drop_hosts("a:2,b:2", 4, [2, 3]), drop_hosts("a:2,b:2", 4, [0, 3])
    ('a:2', 'a:2,b:2')
    """
    kept, first = [], 0
    for host in hosts.split(",") if hosts else ():
        end = min(first + count_slots(host), ranks)
        if first == end or not all(rank in lost for rank in range(first, end)):
            kept.append(host)
        first = end
    return ",".join(kept) if kept or not hosts else NO_HOSTS


def count_slots(hosts: str) -> int:
    """How many ranks have room on machines: "a:2,b" have three."""
    counts = [host.partition(":")[2] for host in hosts.split(",") if host]
    return sum(int(count) if count.isdecimal() else 1 for count in counts)


def _say(text: str) -> None:
    print(f"pullback run: {text}", file=sys.stderr, flush=True)
