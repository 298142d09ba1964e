"""The endpoints, over a real socket, with the model in this process."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer
from transformers import AutoTokenizer

from spade_agentic import PolicyClient, Sampling, WeightUpdateFailed
from spade_agentic.config import resolve_model
from spade_agentic.errors import ContextOverflow, EngineError
from spade_agentic.inference.embedded.__main__ import _arguments, build_service
from spade_agentic.inference.embedded.http import make_app
from spade_agentic.inference.embedded.protocol import Limits, chat_body, parse_chat
from spade_agentic.inference.embedded.requests import Result
from spade_agentic.inference.embedded.text import Text, parse_hermes
from spade_agentic.inference.publishing import combined_checksum, folder_checksums
from spade_agentic.rollout.rendering import build_rendering

TOOLS = [{
    "type": "function",
    "function": {
        "name": "set_to", "description": "Set it.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}]
MESSAGES = [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": "Set it to 1."}]


@pytest.fixture
async def server(model_dir):
    service = build_service(_arguments(["--model", str(model_dir), "--context-tokens", "600"]), None)
    service.scheduler.start()
    async with TestClient(TestServer(make_app(service))) as client:
        yield client
    service.scheduler.stop()


@pytest.fixture
async def policy(server):
    client = PolicyClient(str(server.make_url("")))
    yield client
    await client.close()


async def _chat(server, status=200, **body):
    answer = await server.post("/v1/chat/completions", json={"model": "m", "max_tokens": 8, "ignore_eos": True, **body})
    assert answer.status == status, await answer.text()
    return await answer.json()


@pytest.fixture(params=[False, True], ids=["plain", "tools"])
def conversation(request):
    """A conversation of one turn, and one that goes on after a call."""
    if not request.param:
        return MESSAGES, None
    call = {"id": "c1", "type": "function", "function": {"name": "set_to", "arguments": '{"n": 1}'}}
    return [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'}], TOOLS


async def test_a_conversation_has_the_very_ids_of_the_id_path(server, model_dir, conversation):
    messages, tools = conversation
    by_text = await _chat(server, messages=messages, tools=tools, seed=5, return_token_ids=True)
    rendering = build_rendering(model_dir, {"name": "qwen3", "enable_thinking": True})
    call = [{**m, "tool_calls": [{**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
                                 for c in m["tool_calls"]]} if "tool_calls" in m else m for m in messages]
    ids = rendering.prompt(call, tools)
    choice = by_text["choices"][0]
    assert choice["prompt_token_ids"] == ids
    by_ids = await _chat(server, messages=MESSAGES, input_ids=ids, seed=5, return_token_ids=True)
    assert by_ids["choices"][0]["response_token_ids"] == choice["response_token_ids"]


async def test_the_answer_carries_ids_logprobs_versions_and_usage(server, reference):
    ids = list(range(20, 60))
    answer = await _chat(server, messages=MESSAGES, input_ids=ids, seed=1, logprobs=True, return_meta_info=True, rid="mine")
    meta = answer["choices"][0]["meta_info"]
    logprobs, tokens = zip(*[(p[0], p[1]) for p in meta["output_token_logprobs"]], strict=True)
    assert logprobs == pytest.approx(reference.logprobs(ids, tokens), abs=5e-5)
    assert answer["id"] == meta["id"] == "mine"
    assert meta["weight_versions"] == [{"version": "0", "start": 0, "end": 8}]
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert answer["usage"]["prompt_tokens"] == 40
    assert answer["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("skip", [True, False])
def test_a_call_is_read_whether_or_not_its_marks_are_special_tokens_of_the_vocabulary(skip):
    """``spade-tiny`` marks calls with special tokens, Qwen3's vocabulary with ordinary ones."""
    text = Text(resolve_model("spade-tiny"))
    ids = text.encode('<tool_call>\n{"name": "read_ticket", "arguments": {"ticket": "Ana5"}}\n</tool_call>')
    assert "<tool_call>" not in text.decode(ids)
    body = {"messages": MESSAGES, "tools": TOOLS, "skip_special_tokens": skip, "input_ids": [1]}
    parsed = parse_chat(body, text, Limits(context_tokens=64, vocab_size=2000))
    result = Result("r", ids, [0.0] * len(ids), [("0", 0, len(ids))], {"type": "stop"}, 1, 0, 0, "0")
    choice = chat_body(parsed, result, text, "m")["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("read_ticket", {"ticket": "Ana5"})
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


async def test_openais_client_reads_the_answer(server):
    async with openai.AsyncOpenAI(base_url=str(server.make_url("/v1")), api_key="x") as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=5, logprobs=True, seed=1)
        models = await client.models.list()
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens
    assert models.data[0].object == "model"


async def test_a_stop_string_is_cut_from_the_text(server, model_dir):
    free = (await _chat(server, messages=MESSAGES, seed=2, max_tokens=30))["choices"][0]["message"]["content"]
    stop = free[8:11]
    answer = (await _chat(server, messages=MESSAGES, seed=2, max_tokens=30, stop=[stop]))["choices"][0]
    assert answer["message"]["content"] == free[: free.index(stop)]
    assert answer["finish_reason"] == "stop"
    assert answer["matched_stop"] == stop


async def test_generate_speaks_text_and_ids(server, model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    params = {"max_new_tokens": 6, "sampling_seed": 3, "ignore_eos": True}
    by_text = await (await server.post("/generate", json={"text": "Set it", "sampling_params": params})).json()
    ids = tokenizer("Set it", add_special_tokens=False)["input_ids"]
    by_ids = await (await server.post("/generate", json={"input_ids": ids, "sampling_params": params})).json()
    assert by_text["output_ids"] == by_ids["output_ids"]
    assert by_text["text"] == tokenizer.decode(by_text["output_ids"], skip_special_tokens=True)
    assert by_text["meta_info"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages"),
        ({"input_ids": [5, 10**6]}, "input_ids"),
        ({"input_ids": "abc"}, "input_ids"),
        ({"input_ids": [1], "temperature": -1}, "temperature"),
        ({"input_ids": [1], "top_p": 0}, "top_p"),
        ({"input_ids": [1], "max_tokens": 0}, "max_tokens"),
        ({"input_ids": [1], "n": 2}, "n"),
        ({"input_ids": [1], "stream": True}, "stream"),
        ({"input_ids": [1], "frequency_penalty": 0.5}, "frequency_penalty"),
        ({"input_ids": [1], "tool_choice": "required"}, "tool_choice"),
        ({"input_ids": [1], "wave": {"id": "x"}}, "wave"),
        ({"input_ids": [1], "seed": "x"}, "seed"),
        ({"input_ids": [1], "temprature": 1}, "temprature"),
    ],
)
async def test_a_field_that_cannot_be_honoured_is_refused_by_name(server, body, param):
    answer = await _chat(server, status=400, **body)
    assert answer["error"]["param"] == param
    assert answer["error"]["message"]


async def test_bodies_that_are_no_json_object_and_unknown_routes_are_openai_errors(server):
    chat = "/v1/chat/completions"
    for path, data, status in [(chat, b"{", 400), (chat, b"[]", 400), ("/nothing", b"{}", 404)]:
        answer = await server.post(path, data=data)
        assert answer.status == status
        assert set((await answer.json())["error"]) == {"message", "type", "param", "code"}


async def test_a_conversation_beyond_the_context_is_refused_before_anything_is_sampled(policy):
    for length, tokens in ((600, 1), (590, 11)):
        with pytest.raises(ContextOverflow):
            await policy.complete([30] * length, Sampling(max_tokens=tokens), seed=1, request_id="r", stop_token_ids=[])
    assert (await policy.server_info())["generated_tokens"] == 0


async def test_the_policy_client_returns_what_was_sampled(policy, reference):
    ids = list(range(20, 60))
    done = await policy.complete(ids, Sampling(temperature=0.7, max_tokens=9), seed=3, request_id="r", stop_token_ids=[])
    assert done.versions == (0,) * len(done.token_ids)
    assert list(done.logprobs) == pytest.approx(reference.logprobs(ids, done.token_ids, 0.7), abs=5e-5)
    again = await policy.complete(ids, Sampling(temperature=0.7, max_tokens=9), seed=3, request_id="r", stop_token_ids=[])
    assert again.token_ids == done.token_ids
    assert again.cached_tokens > 0


async def test_new_weights_are_served_under_their_version(policy, other_weights):
    await policy.update_weights(str(other_weights), "7")
    assert (await policy.model_info())["weight_version"] == "7"
    assert await policy.weights_checksum() == combined_checksum(folder_checksums(other_weights))
    done = await policy.complete([30] * 9, Sampling(max_tokens=3), seed=1, request_id="r", stop_token_ids=[])
    assert set(done.versions) == {7}


async def test_weights_that_do_not_load_leave_the_old_ones(policy, tmp_path, untied_dir, model_dir):
    for folder in (tmp_path, untied_dir):
        with pytest.raises(WeightUpdateFailed):
            await policy.update_weights(str(folder), "7")
    assert (await policy.model_info())["weight_version"] == "0"
    assert await policy.weights_checksum() == combined_checksum(folder_checksums(model_dir))


async def test_a_paused_server_holds_new_requests_until_it_goes_on(policy):
    await policy.pause("retract")
    task = asyncio.create_task(policy.complete([30] * 9, Sampling(max_tokens=3), seed=1, request_id="r", stop_token_ids=[]))
    await asyncio.sleep(0.2)
    assert not task.done()
    await policy.resume()
    assert len((await task).token_ids) == 3


async def test_abort_ends_what_waits(policy):
    wave = ("s-w0", 2)
    task = asyncio.create_task(
        policy.complete([30] * 9, Sampling(max_tokens=3), seed=1, request_id="r", stop_token_ids=[], wave=wave)
    )
    await asyncio.sleep(0.2)
    await policy.abort()
    done = await task
    assert done.finish_reason == "abort"
    assert done.token_ids == ()


async def test_a_client_that_hangs_up_takes_its_request_with_it(model_dir):
    service = build_service(_arguments(["--model", str(model_dir)]), None)
    service.scheduler.start()
    app = TestServer(make_app(service))
    await app.start_server()
    async with aiohttp.ClientSession() as session:
        body = {"input_ids": [30] * 9, "wave": {"id": "w", "size": 2}}
        with pytest.raises(TimeoutError):
            await session.post(app.make_url("/v1/chat/completions"), json=body, timeout=aiohttp.ClientTimeout(0.3))
    for _ in range(100):
        if service.scheduler.load().result(10)["waiting"] == 0:
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the request still waits")
    await app.close()
    service.scheduler.stop()


async def test_flush_pause_modes_and_health(server, policy):
    assert (await server.get("/health")).status == 200
    await policy.flush_cache()
    assert (await server.post("/pause_generation", json={"mode": "sometimes"})).status == 400
    with pytest.raises(EngineError, match="action"):
        await policy._admin("POST", "/weights_checker", {"action": "compare"})


async def test_a_folder_without_a_tokenizer_serves_ids_only(model_dir, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    service = build_service(_arguments(["--model", str(tmp_path)]), None)
    service.scheduler.start()
    async with TestClient(TestServer(make_app(service))) as client:
        answer = await _chat(client, messages=MESSAGES, input_ids=[30] * 9)
        assert answer["choices"][0]["message"]["content"] is None
        for body in ({"messages": MESSAGES}, {"input_ids": [30], "stop": "x"}):
            assert "tokenizer" in (await _chat(client, status=400, **body))["error"]["message"]
    service.scheduler.stop()


async def test_an_api_key_is_needed_where_one_is_set(model_dir):
    service = build_service(_arguments(["--model", str(model_dir)]), "secret")
    service.scheduler.start()
    async with TestClient(TestServer(make_app(service))) as client:
        assert (await client.get("/health")).status == 200
        assert (await client.get("/v1/models")).status == 401
        assert (await client.get("/v1/models", headers={"Authorization": "Bearer secret"})).status == 200
    service.scheduler.stop()


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("hello", "hello", []),
        ('<tool_call>\n{"name": "a", "arguments": {"n": 1}}\n</tool_call>', "", [("a", {"n": 1})]),
        ('so <tool_call>{"name": "a"}</tool_call>\n<tool_call>{"name": "b", "arguments": {}}</tool_call>', "so",
         [("a", {}), ("b", {})]),
        ('<tool_call>{"name": "a", "arguments": {}}', '<tool_call>{"name": "a", "arguments": {}}', []),
        ("<tool_call>{broken}</tool_call>", "<tool_call>{broken}</tool_call>", []),
        ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
        ('<tool_call>{"name": "a", "arguments": 1}</tool_call>', '<tool_call>{"name": "a", "arguments": 1}</tool_call>', []),
        ('<tool_call>[]</tool_call><tool_call>{"name": "a"}</tool_call>', "<tool_call>[]</tool_call>", [("a", {})]),
    ],
)
def test_only_wellformed_hermes_blocks_are_calls(text, content, calls):
    parsed = parse_hermes(text)
    assert parsed.content == content
    assert [(c["name"], json.loads(c["arguments"])) for c in parsed.calls] == calls
