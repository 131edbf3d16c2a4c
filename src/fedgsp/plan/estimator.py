"""What scikit-learn asks of an estimator, by hand: groupers can be cloned, searched over and put into its tools without it.

Groupers stay frozen: what `fit` finds and `set_params` changes are set from here only, and no run calls either.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError


class BadCounts(InputError, ValueError):
    """Counts that cannot be grouped; a ValueError too, which is what scikit-learn's tools expect."""


class NotNumbers(InputError, TypeError):
    """Counts that are no numbers at all; a TypeError too."""


class Estimator:
    """`get_params`, `set_params`, `fit_predict` and tags, for frozen dataclasses with a `fit` that sets `labels_`."""

    labels_: NDArray[np.int64]
    n_features_in_: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Args:
            deep: Also those of groupers inside this one, as `grouper__tau`.
        """
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        for name, value in list(found.items()) if deep else ():
            if isinstance(value, Estimator):
                found |= {f"{name}__{inner}": own for inner, own in value.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place, as scikit-learn's searches do; in a method use `dataclasses.replace`.

        Args:
            params: Values by name; `grouper__tau` is a parameter of the grouper inside.

        Returns:
            Itself.

        Raises:
            InputError: There is no such parameter, or it cannot have such a value.
        """
        known = self.get_params(deep=False)
        wanted = dict(known)
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known or (inner and not isinstance(known[outer], Estimator)):
                raise BadCounts(f"Invalid parameter {name!r} for {type(self).__name__}; it has {', '.join(known)}.")
            wanted[outer] = copy.copy(wanted[outer]).set_params(**{inner: value}) if inner else value
        try:
            type(self)(**wanted)  # refuses what cannot be, before anything is changed
        except InputError as error:
            raise BadCounts(str(error)) from error
        for name, value in wanted.items():
            object.__setattr__(self, name, value)
        return self

    def fit_predict(self, X: ArrayLike, y: object = None, **options: Any) -> NDArray[np.int64]:
        """Group clients and give their labels.

        Args:
            X: (K, F) one non-negative vector per client: an array, a sparse matrix or a data frame.
            y: Ignored.
            options: As for `fit`.
        """
        return self.fit(X, **options).labels_  # type: ignore[attr-defined,no-any-return]

    def found(self, labels: NDArray[np.int64], given: Any) -> Self:
        """Set what `fit` leaves behind."""
        object.__setattr__(self, "labels_", labels)
        object.__setattr__(self, "n_features_in_", int(given.shape[1]) if hasattr(given, "shape") else len(given[0]))
        vars(self).pop("feature_names_in_", None)
        names = getattr(given, "columns", None)
        if names is not None and all(isinstance(name, str) for name in names):
            object.__setattr__(self, "feature_names_in_", np.asarray(list(names), dtype=object))
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type="clusterer", target_tags=TargetTags(required=False),
            input_tags=InputTags(sparse=True, positive_only=True),
        )  # fmt: skip


def as_table(where: str, given: Any) -> ArrayLike:
    """What a person gave as counts, as something that NumPy takes: sparse matrices and data frames too."""
    dense = given.toarray() if hasattr(given, "toarray") else given
    try:
        table = np.asarray(dense)
    except ValueError:
        raise BadCounts(f"{where}: counts must be a table whose rows all have the same length.") from None
    if table.dtype.kind == "c":
        raise BadCounts(f"{where}: counts must be real. Complex data not supported.")
    if table.dtype.kind == "O":
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise NotNumbers(f"{where}: counts must be numbers ({error}).") from None
    if table.ndim == 1:
        raise BadCounts(f"{where}: counts must have two dimensions (clients, classes), not 1. Reshape your data.")
    if table.ndim == 2 and not len(table):
        raise BadCounts(
            f"{where}: there are no clients to group: 0 sample(s) (shape={table.shape}) while a minimum of 1 is required."
        )
    if table.ndim == 2 and not table.shape[1]:
        raise BadCounts(
            f"{where}: counts must have at least one column. 0 feature(s) (shape={table.shape}) while a minimum of 1 is "
            f"required."
        )
    if table.dtype.kind == "f" and table.ndim == 2:
        if not np.isfinite(table).all():
            row = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
            raise BadCounts(f"{where}: counts must be finite, but row {row} is not. It has NaN or infinity.")
        table = table.astype(np.float64, copy=False)
    if table.dtype.kind in "if" and table.ndim == 2 and table.min() < 0:
        row = int(np.flatnonzero((table < 0).any(axis=1))[0])
        raise BadCounts(f"{where}: counts must not be negative, but row {row} has one that is. Negative values in data.")
    return table


def generator_of(random_state: object) -> np.random.Generator:
    """A generator from any kind of `random_state`: a whole number, None for chance, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
    return np.random.default_rng(random_state)  # type: ignore[arg-type]
