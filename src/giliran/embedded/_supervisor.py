"""Run a server, and kill it when the program that wanted it is gone.

A script of its own, because every way a server could watch its parent itself falls short:
PR_SET_PDEATHSIG needs a preexec_fn, fires when the *thread* that spawned the server ends, and
does not exist on macOS. This one notices the end of the order pipe from the program at once;
the look at getppid() is for a program that forked, whose children hold the pipe open.

Orders are signal numbers, one byte each. So only the process that reaps the server ever signals
it, and never a stranger who got its number. Imports little, since every start waits for it.

Arguments: the program's process id, the private folder, the server's command.
"""

import os
import select
import signal
import sys


def main(parent: int, home: str, command: list[str]) -> None:
    """Run the command until it ends, or its program does; leave nothing behind."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    server = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two
    )
    try:
        _supervise(server, parent, woken, home)
    finally:
        # Whatever happened: this session is ours alone, and nothing in it may stay.
        os.killpg(os.getpid(), signal.SIGKILL)


def _supervise(server: int, parent: int, woken: int, home: str) -> None:
    os.write(1, b"%d" % server)
    while True:
        ready = select.select([0, woken], [], [], 0.5)[0]
        if woken in ready and os.read(woken, 64) and os.waitpid(server, os.WNOHANG)[0]:
            return
        order = os.read(0, 1) if 0 in ready else None
        if order == b"" or os.getppid() != parent:
            _abandon(server, home)
            return
        if order:
            os.kill(server, order[0])
            os.write(1, order)


def _abandon(server: int, home: str) -> None:
    import shutil  # noqa: PLC0415 - too slow for the start, and only needed here

    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
