"""The numbers in the docs: `make bench`, or one of them with `make bench ONLY=heartbeat`."""
