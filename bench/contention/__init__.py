"""What a crowd on one key costs: through Celery, and waiting in processes; beside peers."""

from bench.contention.run import main

__all__ = ["main"]
