"""How a writer writes: a hand of one's own, a habit for each character, and the chance of the moment.

Three layers make the feature skew of a federation. The *hand* (size, slant, pen, roundness, care) is common to all of
a writer's glyphs; the *habit* is the writer's own way of one character (which allograph, how its points are displaced)
and stays from sample to sample; the *moment* is fresh in each sample.

The figures below were set by measuring real FEMNIST: how much size, width, slant and pen width differ between writers,
between the characters of a writer, and between the samples of a character.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fedgsp.data.glyphs.bits import Floats, Stream, Words, bell, uniform, words
from fedgsp.data.glyphs.outlines import CLASSES, alphabet
from fedgsp.data.glyphs.pen import Skeletons

_CAP_HEIGHT = 9.8
"""Pixels from the baseline to the top of an average writer's capitals."""
_PEN_RADIUS = 0.69
_FAITHFUL = 0.95
"""How often a writer uses the habitual allograph of a character rather than the second one."""


# Columns of random numbers.
_Hand = IntEnum("_Hand", "CARE BOW SIZE LETTER_SIZE WIDTH SLANT TILT ROUNDNESS CURL PEN RIGHT DOWN", start=0)
_Habit = IntEnum("_Habit", "SHAPE SECOND_SHAPE BEND WAIST HEIGHT WIDTH SLANT TILT PEN", start=0)
_Moment = IntEnum("_Moment", "FAITHFUL HASTE BEND WAIST SIZE HEIGHT WIDTH SLANT TILT PEN RIGHT DOWN", start=0)

_AT_POINTS = 12
"""Habit and moment have further columns from here on: for each point its displacement in x and y, and its bow."""
_PER_POINT = 3


def skeletons(seed: int, writers: Sequence[int], labels: Sequence[npt.NDArray[np.int64]]) -> Skeletons:
    """The control points, in pixels, of all samples of these writers, one after the other."""
    letters = alphabet()
    label = np.concatenate(labels)
    hand, habit_words, moment_words = _chances(seed, writers, labels)
    habit, moment = bell(habit_words), bell(moment_words)

    faithful = uniform(moment_words[:, _Moment.FAITHFUL]) < _FAITHFUL
    usual = letters.choose(label, habit_words[:, _Habit.SHAPE])
    shape = np.where(faithful, usual, letters.choose(label, habit_words[:, _Habit.SECOND_SHAPE]))
    count = letters.point_count[shape]
    image = np.repeat(np.arange(len(label), dtype=np.int64), count)
    within = np.arange(len(image), dtype=np.int64) - (np.cumsum(count) - count)[image]
    point = letters.first_point[shape][image] + within

    # Points go astray: by the writer's way with the character, and by chance, more so in a hurry.
    careless = np.clip(hand[:, _Hand.CARE] * 0.35 + 1.0, 0.4, 2.0)
    haste = uniform(moment_words[:, _Moment.HASTE])
    habitual = (careless * 0.25)[image]
    chance = (careless * (haste * haste * haste * haste * 1.3 + 0.75) * 0.14)[image]
    at = _AT_POINTS + _PER_POINT * within
    x = letters.x[point] + habit[image, at] * habitual + moment[image, at] * chance
    y = letters.y[point] + habit[image, at + 1] * habitual + moment[image, at + 1] * chance
    bow = hand[image, _Hand.BOW] * 0.05 + habit[image, at + 2] * 0.12 + moment[image, at + 2] * 0.07

    # Bent stems and high or low waists: a smooth warp of the whole character.
    off_middle = (y - 5.0) * (y - 5.0) * 0.04
    bend = habit[:, _Habit.BEND] * 0.35 + moment[:, _Moment.BEND] * 0.2
    waist = habit[:, _Habit.WAIST] * 0.35 + moment[:, _Moment.WAIST] * 0.2
    x, y = x + off_middle * bend[image], y + (1.0 - off_middle) * waist[image]

    wide, tall, slant, tilt = _frame(label, hand, habit, moment)
    x, y = x * wide[image], y * tall[image]
    x, y = x - y * slant[image], y - x * tilt[image]

    roundness = np.clip(hand[:, _Hand.ROUNDNESS] * 0.25 + 0.2, 0.0, 0.8)
    smooth = np.where(letters.corner[point], roundness[image], 1.0)
    pen = (hand[:, _Hand.PEN] * 0.2 + 1.0) * (habit[:, _Habit.PEN] * 0.03 + 1.0)
    return Skeletons(
        x=x,
        y=y,
        image=image,
        images=len(label),
        smooth=np.where(letters.inner[point], smooth, 0.0),
        last=letters.last[point],
        bow=bow,
        curl=np.clip(hand[:, _Hand.CURL] * 0.15 + 1.0, 0.6, 1.3),
        radius=np.clip(pen * (moment[:, _Moment.PEN] * 0.06 + 1.0) * _PEN_RADIUS, 0.36, 1.5),
        shift_x=hand[:, _Hand.RIGHT] * 0.15 + moment[:, _Moment.RIGHT] * 0.25,
        shift_y=hand[:, _Hand.DOWN] * 0.15 + moment[:, _Moment.DOWN] * 0.15,
    )


def _chances(seed: int, writers: Sequence[int], labels: Sequence[npt.NDArray[np.int64]]) -> tuple[Floats, Words, Words]:
    """For each sample: its writer's hand, its writer's habit with its character, and the moment."""
    columns = _AT_POINTS + _PER_POINT * alphabet().most_points
    hands, habits, moments = [], [], []
    for writer, own in zip(writers, labels, strict=True):
        hand = bell(words(seed, writer, Stream.STYLE, len(_Hand)))
        hands.append(np.broadcast_to(hand, (len(own), len(_Hand))))
        habits.append(words(seed, writer, Stream.HABITS, CLASSES * columns).reshape(CLASSES, columns)[own])
        moments.append(words(seed, writer, Stream.SAMPLES, len(own) * columns).reshape(len(own), columns))
    return np.concatenate(hands), np.concatenate(habits), np.concatenate(moments)


def _frame(label: npt.NDArray[np.int64], hand: Floats, habit: Floats, moment: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """For each sample: pixels per unit of width and of height, slant to the right, and rise of the line."""
    letter = np.where(label >= 10, 1.0, 0.0)
    size = (hand[:, _Hand.SIZE] * 0.15 + 1.0) * (hand[:, _Hand.LETTER_SIZE] * letter * 0.10 + 1.0)
    size = size * (moment[:, _Moment.SIZE] * 0.065 + 1.0) * (_CAP_HEIGHT * 0.1)
    tall = size * (habit[:, _Habit.HEIGHT] * 0.05 + 1.0) * (moment[:, _Moment.HEIGHT] * 0.07 + 1.0)
    wide = size * (hand[:, _Hand.WIDTH] * 0.10 + 1.0) * (habit[:, _Habit.WIDTH] * 0.09 + 1.0)
    wide = wide * (moment[:, _Moment.WIDTH] * 0.11 + 1.0) * (letter * 0.09 + 1.0)
    slant = hand[:, _Hand.SLANT] * 0.19 + habit[:, _Habit.SLANT] * 0.09 + moment[:, _Moment.SLANT] * 0.11 + 0.08
    tilt = hand[:, _Hand.TILT] * 0.05 + habit[:, _Habit.TILT] * 0.04 + moment[:, _Moment.TILT] * 0.045
    return wide, tall, slant, tilt
