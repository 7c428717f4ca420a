"""For users' tests: a store that grants, refuses or loses on command, and an off switch.

```python
from giliran.testing import fake, off

with fake(turns) as store:
    store.refuse("lock:order:42")
    with pytest.raises(Contended):
        refund(42, "r-1", 500)

with off(turns):        # every guard lets everything through
    refund(42, "r-1", 500)
```
"""

from giliran.testing._fake import FakeStore, fake, off

__all__ = ["FakeStore", "fake", "off"]
