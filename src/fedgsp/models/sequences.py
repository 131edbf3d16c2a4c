"""Networks for sequences: LEAF's LSTM for the next character, and a small transformer for tokens or time series.

A sample is (positions,) of tokens, or (positions, numbers) of a time series. There is one answer a sample, or one a position:
then a position's answer depends on what came before it only, so that it may be the next character. `padding` is the token that
fills short sequences up at their end: nothing attends to it, and the last real position answers.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from fedgsp.models.halved import HalvedNet, outputs_of

EMBEDDING, UNITS, LAYERS = 8, 256, 2
"""LEAF's Shakespeare: characters become 8 numbers, then two layers of 256 units."""
WIDTH, HEADS, BLOCKS = 64, 4, 2


class RecurrentFeatures(nn.Module):
    """Tokens (b, T) to what the LSTM knows after the last of them (b, units), or after each (b, T, units)."""

    def __init__(self, vocabulary: int, every: bool, padding: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, UNITS, LAYERS, batch_first=True)
        self._every, self._padding = every, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        known: torch.Tensor = self.lstm(self.embedding(x))[0]
        if self._every:
            return known
        if self._padding is None:
            return known[:, -1]
        last = ((x != self._padding).sum(dim=1) - 1).clamp(min=0)
        return known[torch.arange(len(x), device=x.device), last]


class AttentionBlock(nn.Module):
    """Attention and a layer of units, each behind a norm and with a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.then_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look, self.found = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.units = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """(b, T, width), and which positions (b or 1, 1, T, T) each may look at; None: all."""
        samples, positions, width = x.shape
        asked = self.look(self.norm(x)).view(samples, positions, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        met = functional.scaled_dot_product_attention(asked[0], asked[1], asked[2], attn_mask=seen)
        x = x + self.found(met.transpose(1, 2).reshape(samples, positions, width))
        added: torch.Tensor = x + self.units(self.then_norm(x))
        return added


class AttentiveFeatures(nn.Module):
    """Tokens (b, T) or a time series (b, T, d) to their mean (b, width), or to what is known at each position."""

    def __init__(self, into: nn.Module, positions: int, every: bool, padding: int | None) -> None:
        super().__init__()
        self.into = into
        self.places = nn.Parameter(torch.empty(positions, WIDTH).normal_(std=0.02))
        self.blocks = nn.ModuleList(AttentionBlock(WIDTH, HEADS) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self._every, self._padding = every, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        real = None if self._padding is None else x != self._padding
        seen = None if real is None else real[:, None, None, :]
        if self._every:
            before = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()[None, None]
            seen = before if seen is None else seen & before
        if seen is not None:  # a position of padding would look at nothing at all, and its answer be no number
            seen = seen | torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        known = self.into(x) + self.places
        for block in self.blocks:
            known = block(known, seen)
        known = self.norm(known)
        if self._every:
            return known
        if real is None:
            return known.mean(dim=1)
        weights = real.unsqueeze(2).to(known.dtype)
        return (known * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def char_lstm(
    shape: tuple[int, ...] = (80,), classes: int = 80, targets: tuple[int, ...] = (), vocabulary: int = 80,
    padding: int | None = None,
) -> nn.Module:  # fmt: skip
    """LEAF's network for the next character of Shakespeare: 819,920 parameters for 80 characters and classes.

    Args:
        shape: A sample's shape, (positions,).
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label: that of the sample where every position has one.
        vocabulary: How many tokens there are.
        padding: The token that fills short sequences up at their end, if any.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If samples are no sequences of tokens.

    Example:
        >>> sum(p.numel() for p in char_lstm().parameters())
        819920
    """
    if len(shape) != 1 or not vocabulary:
        raise ValueError(
            f"it needs sequences of tokens (whole numbers of 16 bits or more), and the samples {_have(shape, vocabulary)}"
        )
    every, outputs = _answers(shape, classes, targets)
    return HalvedNet(RecurrentFeatures(vocabulary, every, padding), nn.Linear(UNITS, outputs))


def tiny_transformer(
    shape: tuple[int, ...] = (64,), classes: int = 2, targets: tuple[int, ...] = (), vocabulary: int = 1000,
    padding: int | None = None,
) -> nn.Module:  # fmt: skip
    """Two blocks of attention, 64 wide, for tokens or time series: 135,298 parameters for 64 of 1,000 tokens and 2 classes.

    Args:
        shape: A sample's shape: (positions,) of tokens, or (positions, numbers) of a time series.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label: (positions,) where every position has one.
        vocabulary: How many tokens there are; 0 for a time series.
        padding: The token that fills short sequences up at their end, if any.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If samples are neither.

    Example:
        >>> sum(p.numel() for p in tiny_transformer().parameters())
        135298
    """
    if vocabulary and len(shape) == 1:
        into: nn.Module = nn.Embedding(vocabulary, WIDTH)
    elif not vocabulary and len(shape) == 2:
        into = nn.Linear(shape[1], WIDTH)
    else:
        raise ValueError(
            f"it needs sequences, (positions,) of tokens or (positions, numbers) of a time series, and the samples "
            f"{_have(shape, vocabulary)}"
        )
    every, outputs = _answers(shape, classes, targets)
    return HalvedNet(AttentiveFeatures(into, shape[0], every, padding if vocabulary else None), nn.Linear(WIDTH, outputs))


def _answers(shape: tuple[int, ...], classes: int, targets: tuple[int, ...]) -> tuple[bool, int]:
    """Whether every position answers, and how many numbers an answer has."""
    every = bool(classes) and targets == shape[:1]
    return every, outputs_of(classes, () if every else targets)


def _have(shape: tuple[int, ...], vocabulary: int) -> str:
    return f"have shape {shape}" + ("" if vocabulary else " and are no tokens")
