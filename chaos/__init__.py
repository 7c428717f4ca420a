"""Real workers on a real server, killed, frozen and cut off; an independent checker judges."""
