"""Celery 5.4 and later: `Giliran(url, queues=[CeleryQueue(app)])`, guards below `@app.task`."""

from giliran.adapters.celery.queue import CeleryQueue

__all__ = ["CeleryQueue"]
