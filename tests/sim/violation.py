"""What every check of the world raises."""


class Violation(AssertionError):
    """Something happened that must not."""
