"""Run by `pytest`: the project trains, and the same seed gives the same bits."""

import fedgsp
from model import network
from rule import METHOD, Clipped


def trained(**options):
    return fedgsp.train(METHOD, "glyphs:clients=12", network, rounds=2, workers=0, **options)


def test_it_trains_and_can_be_repeated():
    first, again = trained(), trained()
    assert first.status == "finished"
    assert first.state.digest() == again.state.digest()


def test_the_rule_does_something():
    assert isinstance(METHOD.local, Clipped)
    held = fedgsp.train(
        fedgsp.Method(METHOD.planner, Clipped(lr=0.05, batch_size=10, most=1e-9), METHOD.server),
        "glyphs:clients=12",
        network,
        rounds=1,
        workers=0,
    )
    moved = max((held.state.model[name] - start).abs().max().item() for name, start in held.run.initial_model.items())
    assert moved < 1e-6
