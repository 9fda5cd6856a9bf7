"""A few faults of every kind, as `make faults` does many."""

import pytest
from run import FEW, ROOMS, outcomes
from runs import FAULTS


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_lost(room, tmp_path):
    found = list(outcomes(room, tmp_path, seed=1, amount=FEW))
    assert len(found) >= 2
    assert not [outcome for outcome in found if outcome.verdict in FAULTS]
