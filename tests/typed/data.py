"""Data: arrays in, batches of arrays out."""

from typing import reveal_type

import pullback as pb

images, labels = pb.data.digits()
reveal_type(images)  # ndarray
loader = pb.data.batches((images, labels), 100)
reveal_type(loader)  # Batches
reveal_type(len(loader))  # int
for some_images, some_labels in loader:
    assert len(some_images) == 100
    reveal_type(pb.nn.one_hot(pb.tensor(some_labels), 10))  # Tensor
    break
