"""The routes example: its loop ends with the networks that networkx computes from the table, also after crashes."""

from __future__ import annotations

import pytest
from routes import Spread, labels, networks, routes
from routes_source import flown
from truth.routes import networks as true_networks

from penstock.testing import Crash, Driver, Step


@pytest.mark.parametrize("crash", [None, Crash(Step.COMMIT_TRANSACTION)])
def test_the_networks_of_the_airlines_are_found(crash: Crash | None) -> None:
    """The loop ends, and each station has the smallest station of its network."""
    driver, events = Driver(Spread), flown()
    crashes = [] if crash is None else [crash]
    driver.send(routes, [*events[:300], *crashes, *events[300:]])
    found = {member.station: member.label for member in driver.read(networks)}

    assert found == true_networks()
    assert len(set(found.values())) > len({station[:2] for station in found})  # some airlines have several
    assert len(driver.read(labels)) > len(events)
