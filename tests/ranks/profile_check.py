"""One rank of a job that profiles a step, and writes one trace of all ranks; started by `test_profile_ranks.py`."""

import sys

import numpy as np

import pullback as pb

pb.distributed.init()
rank = pb.distributed.rank()
w = pb.tensor(np.ones((64, 64)), requires_grad=True)
v = pb.tensor(np.ones(64), requires_grad=True)
pb.distributed.DistributedGradient({"weight": w, "bias": v})
step = pb.jit(lambda x: pb.distributed.total(x * 2.0))
with pb.profile() as seen:
    for _ in range(3):
        pb.sum(pb.tanh(w @ v) * (1.0 + rank)).backward()
    step(np.ones(8))
every = seen.gather()
every.save(sys.argv[1])
for clock in every.ranks:
    # processes of one machine read one clock
    assert abs(clock.offset) <= clock.uncertainty + 1, clock
    assert clock.uncertainty < 50_000_000, clock
assert {e.rank for e in every.events} == set(range(pb.distributed.world_size()))
print(f"rank {rank}: ok", flush=True)
