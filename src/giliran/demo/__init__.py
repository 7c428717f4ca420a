"""`giliran demo`: refunds on real Celery workers that are killed and frozen, three times over.

Needs the extra `demo`. The library does not import this package.
"""
