"""How arrays of ranks meet: threads of one process, shared memory of one machine, messages, GPUs."""
