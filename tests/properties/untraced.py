"""Settings of the models: the same examples in every run, and no trace function.

Hypothesis traces what it explains. A trace function and a time limit that raises in it hung CPython
3.11 for good, in long runs of all tests.
"""

from hypothesis import Phase, settings

UNTRACED = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=set(Phase) - {Phase.explain},
)
