"""For users' tests: a store that grants, refuses or loses on command, an off switch, and faults.

```python
from giliran.testing import fake, off

with fake(turns) as store:
    store.refuse("lock:order:42")
    with pytest.raises(Contended):
        refund(42, "r-1", 500)

with off(turns):        # every guard lets everything through
    refund(42, "r-1", 500)
```

On a real server: `lose_lease`, `pause_heartbeat`, `stepped_clock` and `deliver_twice`, and a
`FaultProxy` before it that loses, delays and doubles chosen commands. With pytest
the fixtures of `giliran.testing.plugin` are there by themselves.
"""

from giliran.testing._fake import FakeStore, fake, off
from giliran.testing._faults import (
    Clock,
    deliver_twice,
    lose_lease,
    pause_heartbeat,
    stepped_clock,
)
from giliran.testing._proxy import FaultProxy, Rule

__all__ = [
    "Clock",
    "FakeStore",
    "FaultProxy",
    "Rule",
    "deliver_twice",
    "fake",
    "lose_lease",
    "off",
    "pause_heartbeat",
    "stepped_clock",
]
