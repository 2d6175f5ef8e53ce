"""Layers built with PyTorch's keywords, or with our own."""

from typing import reveal_type

import numpy as np

import pullback as pb
from pullback import nn

images = pb.tensor(np.ones((2, 3, 8, 8), np.float32))
net = nn.Sequential(
    nn.Conv2d(3, 4, kernel_size=3, padding=1, padding_mode="zeros"),
    nn.BatchNorm2d(num_features=4),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(kernel_size=2, stride=2),
    nn.Conv2d(in_channels=4, out_channels=4, kernel_size=(3, 3), bias=False),
    nn.ConvTranspose2d(4, out_channels=4, kernel_size=1),
    nn.GroupNorm(num_groups=2, num_channels=4),
    nn.Flatten(start_dim=1),
    nn.Linear(in_features=16, out_features=8),
    nn.LayerNorm(normalized_shape=8),
    nn.RMSNorm(normalized_shape=(8,)),
    nn.Dropout(p=0.1, inplace=True),
    nn.Softmax(dim=-1),
    nn.Unflatten(dim=1, unflattened_size=(2, 4)),
)
reveal_type(net(images))  # Tensor
words = nn.Embedding(num_embeddings=10, embedding_dim=8)(np.array([[1, 2, 3]]))
reveal_type(words)  # Tensor
reveal_type(nn.MultiHeadAttention(embed_dim=8, num_heads=2)(words))  # Tensor
block = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, layer_norm_eps=1e-6, batch_first=True)
reveal_type(block(words))  # Tensor
memory = nn.LSTM(8, 4, num_layers=2, bidirectional=True, batch_first=True)
steps, states = memory(words)
reveal_type(steps)  # Tensor
reveal_type(nn.GRU(input_size=8, hidden_size=4)(words)[0])  # Tensor

reveal_type(nn.Linear(inputs=8, outputs=2, key=pb.random.key(0)))  # Linear
reveal_type(nn.Conv1d(inputs=3, outputs=4, window=2))  # Conv1d
reveal_type(pb.checkpoint(block)(words))  # Tensor
