"""A transformers causal language model as the policy that the torch backend trains: micro-batch in, log-probs out.

Master weights are float32. ``bfloat16`` computes under autocast and exports bfloat16; it pays on a GPU, and on CPUs with
AVX-512 bf16. With the default ``packed`` attention a micro-batch is one row of prefix trees; the model's own attention
is replaced by :func:`~spade_agentic.learning.attention.packed_attention`. Whether that reproduces the model (no sliding
window, soft cap and the like) is measured when it is loaded, not assumed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from ..errors import ConfigError, LearnerError
from ..hooks.kinds import TrainSequence
from ..hooks.records import Role
from .attention import PACKED_ATTENTION, packed_attention
from .batches import MIN_SHARED_TOKENS, MicroBatch, pack, pad
from .loss import token_logprobs
from .options import LoraOptions, check_device

__all__ = ["TorchPolicy", "check_finite"]

AttentionInterface.register(PACKED_ATTENTION, packed_attention)

LOGIT_ELEMENTS = 1 << 25
"""At most this many logits (128 MiB in float32) exist at once; beyond it the head is computed, and recomputed, in chunks."""

_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".index.json")


class TorchPolicy:
    """The model, and nothing about optimisation.

    ``packed`` chooses packed rows; else micro-batches are padded and the model's own attention is used.
    Raises :class:`ConfigError` where the folder holds no model, or the model cannot be computed in packed rows.
    """

    def __init__(
        self, model_dir: Path, *, device: str = "cpu", bfloat16: bool = False, packed: bool = True,
        gradient_checkpointing: bool = False, lora: LoraOptions | None = None, seed: int = 0,
    ) -> None:
        self.model_dir = model_dir
        self.device = torch.device(device)
        self.bfloat16 = bfloat16
        self.packed = packed
        self.model = _load(model_dir, self.device)
        self.model.eval()  # no dropout: the trainer's log-probs must be those of the engine
        if packed:
            _narrow_last_mlp(self.model)
            self._use_packed_attention()
        self.adapter = _add_lora(self.model, lora, seed) if lora else None
        if gradient_checkpointing:
            _checkpoint_layers(self.model)

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The trained parameters, by name, in a fixed order."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def logprobs(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the trained tokens, ``[n]`` each (see :func:`token_logprobs`)."""
        with self._autocast():
            hidden = self._hidden(micro).index_select(0, micro.source)
        rows = max(1, LOGIT_ELEMENTS // self.model.get_output_embeddings().weight.shape[0])
        if len(hidden) <= rows:
            return self._head(hidden, micro.target, micro.temperature)
        parts = zip(hidden.split(rows), micro.target.split(rows), micro.temperature.split(rows), strict=True)
        results = [checkpoint(self._head, *part, use_reentrant=False) for part in parts]
        return torch.cat([r[0] for r in results]), torch.cat([r[1] for r in results])

    def frozen_copy(self) -> TorchPolicy:
        """The policy as it was loaded, as a reference. With LoRA it is this very model with the adapters switched off."""
        if self.adapter is not None:
            return _AdapterOff(self)
        reference = TorchPolicy(self.model_dir, device=str(self.device), bfloat16=self.bfloat16, packed=self.packed)
        reference.model.requires_grad_(False)
        return reference

    def export(self, folder: Path) -> None:
        """Write a transformers model folder: config, ``model.safetensors``, and the tokenizer's files as they came."""
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(self.model_dir.iterdir()):
            if source.is_file() and not source.name.endswith(_WEIGHT_SUFFIXES) and source.name != "config.json":
                shutil.copyfile(source, folder / source.name)
        model = self.model
        if self.adapter is not None:
            # Merging in place and undoing it is not exact in floating point, so a copy is merged.
            model = copy.deepcopy(self.adapter).merge_and_unload()
        state = model.state_dict()
        if self.bfloat16:
            state = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in state.items()}
        with _no_progress_bars():
            model.save_pretrained(folder, state_dict=state)
        # transformers writes the type of the master weights; a reader must load what is in the file.
        config = json.loads((folder / "config.json").read_text())
        config["dtype"] = "bfloat16" if self.bfloat16 else "float32"
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    # --- inside --------------------------------------------------------------------------------------------------------

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.bfloat16 else contextlib.nullcontext()

    def _hidden(self, micro: MicroBatch) -> Tensor:
        """Last hidden states, ``[rows * width, hidden]``."""
        extra: dict[str, Any] = {}
        if self.packed:
            extra = {"tree_layout": micro.layout, "position_ids": micro.position_ids, "sources": micro.source.unique()}
        output = self.model.get_decoder()(input_ids=micro.token_ids, use_cache=False, **extra)
        hidden: Tensor = output.last_hidden_state.flatten(0, 1)
        return hidden

    def _head(self, hidden: Tensor, target: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        with self._autocast():
            logits = self.model.get_output_embeddings()(hidden)
        return token_logprobs(logits, target, temperature)

    @torch.no_grad()
    def _use_packed_attention(self) -> None:
        """Switch to packed attention, and compare it with the model's own on two short sequences that share a prefix."""
        batch = _probe(self.model.get_input_embeddings().num_embeddings)
        padded, packed = pad(batch, 1 << 20)[0].to(self.device), pack(batch, 1 << 20)[0].to(self.device)
        own = self.model(input_ids=padded.token_ids, use_cache=False).logits.flatten(0, 1)[padded.source]
        expected, _ = token_logprobs(own, padded.target, padded.temperature)
        todo = "set learner.options.attention to 'model', which computes every sequence with the model's own attention"
        where = f"{type(self.model).__name__} in {self.model_dir}"
        if not type(self.model)._supports_attention_backend:
            raise ConfigError("this model's attention cannot be replaced", where=where, todo=todo)
        self.model.set_attn_implementation(PACKED_ATTENTION)
        try:
            found, _ = self._head(self._hidden(packed).index_select(0, packed.source), packed.target, packed.temperature)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"packed attention does not fit this model: {error}", where=where, todo=todo) from error
        # The two orders differ (by length, by tokens), so compare sequence by sequence.
        worst = max(
            float((expected[padded.sequence == padded.sequence_ids.index(s)]
                   - found[packed.sequence == packed.sequence_ids.index(s)]).abs().max())
            for s in padded.sequence_ids
        )
        if not worst < (0.1 if self.bfloat16 else 1e-3):
            raise ConfigError(
                f"packed attention does not reproduce this model: log-probabilities differ by up to {worst:.2g}",
                where=where, todo=todo,
            )


class _AdapterOff(TorchPolicy):
    def __init__(self, policy: TorchPolicy) -> None:
        self.__dict__.update(policy.__dict__)

    def logprobs(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        with self.adapter.disable_adapter():  # type: ignore[union-attr]
            return super().logprobs(micro)


def _narrow_last_mlp(model: Any) -> None:
    """Compute the last layer's MLP only where a trained token is predicted; its other rows are 0, and nothing reads them.

    The MLP is most of a layer's work, and most tokens of a play are prompt and observations. The rows come with the call,
    as ``sources``, which transformers hands down to every layer; a call without them computes all rows. Where the last layer
    has no plain MLP (a mixture of experts, say), all of it is always computed.
    """
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        return
    last: Any = layers[-1]
    mlp: Any = getattr(last, "mlp", None)
    if not type(mlp).__name__.endswith("MLP"):
        return
    whole_layer, whole_mlp = last.forward, mlp.forward
    rows: list[Tensor] = []

    def layer_forward(*args: Any, sources: Tensor | None = None, **kwargs: Any) -> Any:
        if sources is None:
            return whole_layer(*args, **kwargs)
        rows.append(sources)
        try:
            return whole_layer(*args, **kwargs)
        finally:
            rows.clear()

    def mlp_forward(hidden: Tensor) -> Tensor:
        if not rows:
            return cast(Tensor, whole_mlp(hidden))
        flat = hidden.flatten(0, 1)
        part = whole_mlp(flat.index_select(0, rows[0]))
        full: Tensor = part.new_zeros(len(flat), part.shape[-1]).index_copy(0, rows[0], part)
        return full.view(*hidden.shape[:-1], -1)

    last.forward, mlp.forward = layer_forward, mlp_forward


def _load(model_dir: Path, device: torch.device) -> Any:
    if not (model_dir / "config.json").is_file():
        raise ConfigError(
            "there is no model here", where=str(model_dir),
            todo="set model.path to a folder with config.json and model.safetensors",
        )
    check_device(str(device))
    try:
        with _no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"transformers cannot load this model: {error}", where=str(model_dir)) from error
    return model.to(device)


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


def _probe(vocabulary: int) -> list[TrainSequence]:
    rng = random.Random(0)
    prefix = [rng.randrange(vocabulary) for _ in range(2 * MIN_SHARED_TOKENS)]
    batch = []
    for name, length in (("a", 5), ("b", 9)):
        ids = (*prefix, *(rng.randrange(vocabulary) for _ in range(length)))
        mask = tuple(i >= 8 for i in range(len(ids)))
        batch.append(TrainSequence(name, Role.AGENT, ids, mask, (0.0,) * len(ids), 0.0))
    return batch


def _add_lora(model: Any, options: LoraOptions, seed: int) -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError(
            "LoRA needs the package peft, which is not installed", where="learner.options.lora",
            todo="pip install 'peft>=0.18', or remove the option",
        ) from error
    target = options.target_modules
    config = peft.LoraConfig(
        r=options.rank, lora_alpha=options.alpha, lora_dropout=0.0, task_type="CAUSAL_LM",
        target_modules=target if isinstance(target, str) else list(target),
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a property by its old name
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            raise ConfigError(f"peft refuses: {error}", where="learner.options.lora") from error


def _checkpoint_layers(model: Any) -> None:
    """Keep only each layer's input, and recompute the layer in the backward pass."""
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ConfigError(
            "this model's layers cannot be found, so they cannot be checkpointed", where=type(model).__name__,
            todo="set learner.options.gradient_checkpointing to false",
        )
    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def check_finite(values: Tensor, micro: MicroBatch, what: str) -> None:
    """Raise :class:`LearnerError` that names the first sequence with a value that is not finite."""
    bad = ~torch.isfinite(values)
    if bad.any():
        first = micro.sequence_ids[int(micro.sequence[bad][0])]
        raise LearnerError(
            f"{what} of {int(bad.sum())} of {values.numel()} tokens are not finite, first in sequence {first!r}; "
            "the weights were not changed by this update"
        )
