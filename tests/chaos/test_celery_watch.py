"""Who has a message: told from what the broker did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis
from chaos.celery_watch import Watch
from chaos.history import Recorder, read
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer

TAGS = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]

pytestmark = pytest.mark.keys_without_ttl("celery", "unacked", "last")


def test_a_message_that_was_taken_and_never_noted_is_told(
    server: EmbeddedServer, client: redis.Redis, tmp_path: Path
) -> None:
    watch = Watch(server.port)
    try:
        wait_for(lambda: any(one["cmd"] == "monitor" for one in client.client_list()))
        for number, tag in enumerate(TAGS):
            message = {"headers": {"id": f"a{number}"}, "properties": {"delivery_tag": tag}}
            client.lpush("celery", json.dumps(message))
        noted = client.rpop("celery")
        client.rpop("celery")
        client.hset("unacked", TAGS[0], json.dumps([json.loads(str(noted)), "", "celery"]))
        wait_for(lambda: watch.open() == {"a1", "a2"})
    finally:
        watch.close()
    watch.tell(["a2"], Recorder(tmp_path, "main"))
    assert [(event["kind"], event["job"]) for event in read(tmp_path)] == [("never noted", "a1")]
