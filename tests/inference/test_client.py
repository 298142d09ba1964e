"""The policy client against servers that are not what they should be."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from spade_agentic import EngineError, EngineUnavailable, PolicyClient, Sampling, WeightUpdateFailed
from spade_agentic.errors import ContextOverflow
from spade_agentic.hooks.records import FinishReason

GOOD = {
    "choices": [{"meta_info": {
        "output_token_logprobs": [[-0.5, 7, None], [-0.25, 8, None]], "finish_reason": {"type": "stop", "matched": 8},
        "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}],
        "prompt_tokens": 2, "cached_tokens": None,
    }}]
}


class Fake:
    """Answers every POST with what ``answers`` holds next: a (status, body) pair, or None for hanging up."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.bodies: list[dict] = []

    async def answer(self, request):
        self.bodies.append(orjson.loads(await request.read()))
        answer = self.answers.pop(0)
        if answer is None:
            request.transport.close()
            return web.Response()
        status, body = answer
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


@pytest.fixture
async def serve():
    opened = []

    async def start(fake, **keywords):
        app = web.Application()
        app.router.add_post("/{path:.*}", fake.answer)
        server = TestServer(app)
        await server.start_server()
        client = PolicyClient(str(server.make_url("")), **keywords)
        opened.append((server, client))
        return client

    yield start
    for server, client in opened:
        await client.close()
        await server.close()


def _ask(client, **keywords):
    return client.complete([1, 2], Sampling(0.5, 0.9, 20, 64), seed=11, request_id="play_t0", stop_token_ids=[2], **keywords)


async def test_the_request_says_everything_that_sampling_depends_on(serve):
    fake = Fake((200, GOOD))
    done = await _ask(await serve(fake), wave=("s-w0", 4))
    body = fake.bodies[0]
    assert body["input_ids"] == [1, 2]
    assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (0.5, 0.9, 20, 64)
    assert (body["seed"], body["rid"], body["stop_token_ids"]) == (11, "play_t0", [2])
    assert body["wave"] == {"id": "s-w0", "size": 4}
    assert (done.token_ids, done.logprobs, done.versions) == ((7, 8), (-0.5, -0.25), (3, 4))
    assert done.finish_reason is FinishReason.STOP


async def test_sglang_is_told_nothing_of_waves_where_there_are_none(serve):
    fake = Fake((200, GOOD))
    await _ask(await serve(fake))
    assert "wave" not in fake.bodies[0]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, ContextOverflow),
        (400, {"object": "error", "message": "longer than the model's context length (32)", "code": 400}, ContextOverflow),
        (400, {"error": {"message": "bad top_p"}}, EngineError),
        (500, {"error": "boom"}, EngineError),
        (503, {}, EngineUnavailable),
    ],
)
async def test_http_errors_become_ours(serve, status, body, kind):
    with pytest.raises(EngineError) as caught:
        await _ask(await serve(Fake((status, body))))
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m.pop("output_token_logprobs"),
        lambda m: m.update(weight_versions=[{"version": "3", "start": 0, "end": 1}]),
        lambda m: m.update(weight_versions=[{"version": "default", "start": 0, "end": 2}]),
        lambda m: m.update(finish_reason={"type": "magic"}),
        lambda m: m.update(output_token_logprobs=[[None, 7, None], [-1, 8, None]]),
    ],
)
async def test_an_answer_that_cannot_be_trained_on_is_an_error(serve, spoil):
    body = orjson.loads(orjson.dumps(GOOD))
    spoil(body["choices"][0]["meta_info"])
    with pytest.raises(EngineError, match="cannot be read"):
        await _ask(await serve(Fake((200, body))))


async def test_a_request_whose_connection_broke_is_sent_again(serve):
    fake = Fake(None, (200, GOOD))
    assert (await _ask(await serve(fake))).token_ids == (7, 8)
    assert len(fake.bodies) == 2
    assert fake.bodies[0] == fake.bodies[1]


async def test_a_member_of_a_wave_is_never_sent_twice(serve):
    fake = Fake(None, (200, GOOD))
    with pytest.raises(EngineUnavailable):
        await _ask(await serve(fake), wave=("w", 1))
    assert len(fake.bodies) == 1


async def test_an_error_answer_is_not_asked_for_again(serve):
    fake = Fake((500, {}), (200, GOOD))
    with pytest.raises(EngineError):
        await _ask(await serve(fake))
    assert len(fake.bodies) == 1


async def test_a_server_that_is_not_there_is_unavailable(unused_tcp_port):
    client = PolicyClient(f"http://127.0.0.1:{unused_tcp_port}", retries=1)
    with pytest.raises(EngineUnavailable, match="play_t0"):
        await _ask(client)
    with pytest.raises(EngineUnavailable):
        await client.model_info()
    assert not await client.health()
    await client.close()


async def test_a_server_that_never_answers_is_unavailable_in_time(serve):
    class Silent(Fake):
        async def answer(self, request):
            await asyncio.sleep(5)

    with pytest.raises(EngineUnavailable):
        await _ask(await serve(Silent(), timeout_s=0.3))


async def test_an_update_that_says_no_is_a_failed_update(serve):
    client = await serve(Fake((200, {"success": False, "message": "no"}), (400, {"success": False, "message": "no"})))
    for _ in range(2):
        with pytest.raises(WeightUpdateFailed, match="no"):
            await client.update_weights("/folder", "1")
