"""The building blocks of networks: functions of arrays first, and a thin `Module` for those who want one."""

from .recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]
