from __future__ import annotations

import re

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import Diverged, FedgspError, InputError, RunFailed, did_you_mean
from fedgsp.core.profiles import Profiles
from fedgsp.core.version import __version__


def test_the_nearest_name_is_suggested() -> None:
    assert did_you_mean("fedavgg", ["fedgsp", "fedavg", "naive-gsp"]) == "did you mean 'fedavg'?"


def test_all_names_are_listed_where_none_is_near() -> None:
    assert did_you_mean("zzz", ["beta", "alpha"]) == "choose from: alpha, beta."


def test_nothing_to_choose_from_is_said() -> None:
    assert did_you_mean("beta", []) == "there is none to choose from."


def test_bad_input_and_failed_runs_have_exit_codes_of_their_own() -> None:
    assert InputError.exit_code == 2
    assert RunFailed.exit_code == Diverged.exit_code == 1
    assert issubclass(Diverged, RunFailed)
    assert issubclass(InputError, FedgspError)


def test_the_version_is_one_and_well_formed() -> None:
    assert fedgsp.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_everything_promised_at_the_front_can_be_had() -> None:
    for name in fedgsp.__all__:
        assert getattr(fedgsp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedgsp.nonsense  # noqa: B018


def test_profiles_have_a_row_and_a_size_for_every_client() -> None:
    two, three = np.arange(2), np.arange(3)
    assert len(Profiles(two, np.ones((2, 4), dtype=np.int64), two)) == 2
    with pytest.raises(ValueError, match="one row of counts and one size"):
        Profiles(two, np.ones((3, 4), dtype=np.int64), two)
    with pytest.raises(ValueError, match="one row of counts and one size"):
        Profiles(two, np.ones((2, 4), dtype=np.int64), three)
