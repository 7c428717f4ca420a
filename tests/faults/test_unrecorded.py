"""The effect happened, but Redis refuses to write it down: told, and no failure of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis
from tests.support.leaks import keys_without_ttl
from tests.support.wait import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect


def test_a_record_that_cannot_be_persisted_is_told_and_the_result_returned(
    make_server: MakeServer, connect: Connect, tmp_path: Path
) -> None:
    server = make_server("--enable-protected-configs", "yes")
    turns = connect(server.url)

    @turns.once("receipt:{number}", ttl=1)
    def send(number: int) -> str:
        fail_to_save(client, tmp_path / "gone")
        return "sent"

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert send(1) == "sent"
        client.config_set("stop-writes-on-bgsave-error", "no")
        client.config_set("save", "")  # Else it would not end without having saved.
        assert turns.counts["record.unrecorded"] == 1
        assert turns.counts["lock.lost"] == 0
        wait_for(lambda: not client.exists("receipt:1"))  # Not released, but it expires.
    assert keys_without_ttl(server.url) == []


def fail_to_save(client: redis.Redis, disk: Path) -> None:
    """Take the folder away from under the server, and let it try to save."""
    disk.mkdir()
    client.config_set("dir", str(disk))
    disk.rmdir()
    client.config_set("save", "3600 1")
    client.set("a", "change", px=60_000)
    client.bgsave()
    wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
