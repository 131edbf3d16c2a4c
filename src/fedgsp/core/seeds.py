"""Randomness is derived, never shared: every use has a generator of its own, made from an integer key.

The key is (seed, purpose, round, client, visit, epoch), as far as the purpose needs it. So a result does not depend on
which worker did the work, in what order, or on what else drew random numbers before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

LARGEST_SEED = 2**32 - 1


class Purpose(IntEnum):
    """What random numbers are for. Values are part of the reproducibility contract: never renumber."""

    INIT = 1
    PLAN = 2
    BATCHES = 3
    TORCH = 4
    GROUPS = 5
    SPLIT = 6
    HOLDOUT = 7
    SUBSET = 8
    ROUTE = 9
    PERSONAL = 11
    META = 12
    UNTRAINED = 14
    AUGMENT = 20
    SHARE = 21
    POOL = 22
    SEED_SAMPLES = 23
    GAN = 24
    PARTITION = 30
    TRANSFORM = 31
    SERVER_NOISE = 40
    CLIENT_NOISE = 41
    ATTACKERS = 50


def generator(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """The generator of one purpose and key. Keys of one purpose always have the same length."""
    words = (seed, int(purpose), *key)
    small = min(words) >= 0 and max(words) <= LARGEST_SEED
    return np.random.default_rng(np.array(words, dtype=np.uint32) if small else words)  # the same numbers, an array sooner


@dataclass(frozen=True)
class Seeds:
    """All randomness of a run, from its one `seed`.

    `secret` are numbers that nobody else knows, for noise that nobody else can compute; without them it follows from the seed.
    """

    seed: int
    secret: tuple[int, ...] = ()

    def init(self) -> int:
        """The torch seed of the initial weights."""
        return int(generator(self.seed, Purpose.INIT).integers(2**63))

    def plan(self, round_: int) -> np.random.Generator:
        """Sampling of groups and orders in one round."""
        return generator(self.seed, Purpose.PLAN, round_)

    def groups(self, round_: int) -> np.random.Generator:
        """Formation of groups in one round: apart from `plan`, so that groups can be kept while samples change."""
        return generator(self.seed, Purpose.GROUPS, round_)

    def route(self, round_: int) -> np.random.Generator:
        """Which of several live models each chain of a round begins with."""
        return generator(self.seed, Purpose.ROUTE, round_)

    def batches(self, round_: int, client: int, visit: int, epoch: int) -> np.random.Generator:
        """Order of one client's samples in one local epoch."""
        return generator(self.seed, Purpose.BATCHES, round_, client, visit, epoch)

    def batches_key(self, round_: int, client: int, visit: int, epoch: int) -> tuple[int, ...]:
        """The key of the generator that `batches` gives (`core.orders`)."""
        return (self.seed, int(Purpose.BATCHES), round_, client, visit, epoch)

    def transform(self, round_: int, client: int, visit: int, epoch: int, place: int) -> int:
        """What random transforms are seeded with, for the samples of one epoch from place `place` on."""
        return int(generator(self.seed, Purpose.TRANSFORM, round_, client, visit, epoch, place).integers(2**31))

    def personal(self, round_: int, client: int) -> np.random.Generator:
        """What a client draws when it makes a round's model its own before it is evaluated."""
        return generator(self.seed, Purpose.PERSONAL, round_, client)

    def untrained(self, client: int) -> int:
        """The torch seed of weights that one client draws for itself and never trains."""
        return int(generator(self.seed, Purpose.UNTRAINED, client).integers(2**63))

    def client_noise(self, round_: int, client: int, visit: int, about: str) -> np.random.Generator:
        """What one client adds to its update; `about` is a digest of the update: other updates have other noise."""
        return noise_generator(self.secret or (self.seed,), Purpose.CLIENT_NOISE, about, round_, client, visit)

    def torch(self, round_: int, client: int, visit: int) -> int:
        """What torch is seeded with before a client trains (dropout and the like)."""
        return int(generator(self.seed, Purpose.TORCH, round_, client, visit).integers(2**63))


@dataclass(frozen=True)
class SecretDraws(Seeds):
    """The same for whoever plans rounds, where nobody else may compute who is drawn: by `secret` in place of the seed."""

    def plan(self, round_: int) -> np.random.Generator:
        """See `Seeds.plan`."""
        return np.random.default_rng([*self.secret, int(Purpose.PLAN), round_])

    def groups(self, round_: int) -> np.random.Generator:
        """See `Seeds.groups`."""
        return np.random.default_rng([*self.secret, int(Purpose.GROUPS), round_])


def noise_generator(key: Sequence[int], purpose: Purpose, about: str, *where: int) -> np.random.Generator:
    """The generator of noise that hides something.

    Args:
        key: Whoever knows it can compute the noise: a seed, for a study, or secret numbers.
        purpose: Whose noise it is.
        about: A digest (hex) of what is hidden. Noise that were used twice, on two things, would tell their difference.
        where: Round, client and the like.
    """
    digest = [int(about[at : at + 8], 16) for at in range(0, 64, 8)]
    return np.random.default_rng([*key, int(purpose), *where, *digest])
