"""Breaks the code on purpose, one small fault at a time, and sees whether the tests notice.

    python -m tests.mutations                       the stated faults (`faults.py`): each must be caught
    python -m tests.mutations --sample 20           those of what changed since the last commit, and 20 others (`make test-all`)
    python -m tests.mutations moon sums             those with one of these words in their file or text
    python -m tests.mutations --generated 240       generated ones for so many seconds; survivors are listed, not an error
    python -m tests.mutations --generated 240 --seed 7

Faults are applied to a copy of src/; the working tree is not touched. A fault that no test notices is a missing test.

Why a tool of our own: mutmut and cosmic-ray try every mutant of a module (thousands here, seconds each) and cannot state the
faults that matter most: those that only this package can have. A stated fault is found by tokens, so renames do not break it;
generated ones are sampled by a seed (the commit's, if none is given) in a fixed order, as many as the time allows.
"""
