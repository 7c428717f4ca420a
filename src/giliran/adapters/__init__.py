"""One module per queue; each knows one framework, and none knows another."""
