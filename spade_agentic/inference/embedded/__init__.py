"""The embedded inference server: a small, fast CPU engine behind the OpenAI/SGLang HTTP dialect.

Run it as its own process: ``python -m spade_agentic.inference.embedded --model DIR --port P``. From the outside in:

``http``       aiohttp routes and the life of one request
``protocol``   JSON bodies to requests, results to JSON bodies
``text``       tokenizer, chat template and tool-call parsing
``scheduler``  the compute thread: admission, waves, decode steps, pause and weight swaps
``prefill``    prompts of many lengths, each shared prefix computed once
``rows``       the running batch: vectorised per-request state
``radix``      the prefix tree over cached tokens
``kv``         key/value memory: rows, shared stems, and the pool behind the tree
``model``      the Qwen3 forward pass
``sampling``   counter-based noise and the sampler
"""
