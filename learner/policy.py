"""The policy as a module: tokens in, log-probabilities of the completion tokens out; full weights or LoRA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from learner import attention
from learner.adapters import FOLDER, Adapter, is_adapter, read_adapter
from learner.errors import LearnerError
from learner.losses import token_logprobs
from learner.packing import MicroBatch
from learner.pretrained import model_name, prepare_model
from learner.settings import LearnerSettings

_ADAPTER = "default"
_REFERENCE = "reference"


class Policy(torch.nn.Module):
    """A causal language model whose forward gives log-probabilities, never logits.

    With ``settings.lora.rank > 0`` only adapters are trained, else every weight. The reference policy is the model as
    it was loaded, until ``anchor_reference`` makes it the policy of that moment: with adapters, the model with them off
    or a frozen second set of them; else a frozen copy, made only when a KL term needs it.
    """

    def __init__(self, model_dir: Path, settings: LearnerSettings, seed: int) -> None:
        super().__init__()
        self._chunk = settings.logits_chunk_tokens
        self.uses_lora = settings.lora.rank > 0
        self._lora = settings.lora
        started = _started_adapter(model_dir, settings)
        self._base = Path(prepare_model(started.base)) if started else model_dir
        self.model = _load(self._base, settings)
        # Kept out of the module's own parameters: DeepSpeed would broadcast and save it.
        self._reference: list[torch.nn.Module] = []
        self._anchored = False
        if self.uses_lora:
            self.model = _with_adapters(self.model, settings, seed)
            if started:
                self._start_from(started)
                if settings.kl_coefficient > 0:
                    self.anchor_reference()
        elif settings.kl_coefficient > 0:
            self._reference.append(_load(model_dir, settings).requires_grad_(False).eval())
        if settings.gradient_checkpointing:
            self._causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        # Checkpointing is active only in training mode; the models have no dropout that this would turn on.
        self.train()

    def forward(self, batch: MicroBatch, temperature: float, *, reference: bool = False) -> torch.Tensor:
        """[N] float32: log p of ``batch.targets`` at ``temperature``.

        With ``reference``, under the reference policy and without gradient.
        """
        if not reference:
            return self._logprobs(self._causal_lm, batch, temperature)
        with torch.no_grad():
            if not self.uses_lora:
                return self._logprobs(self._reference[0], batch, temperature)
            with self._as_reference():
                return self._logprobs(self._causal_lm, batch, temperature)

    def anchor_reference(self) -> None:
        """Makes the present policy the reference policy. All ranks call it."""
        for reference, current in self._reference_pairs():
            with _gathered([reference, current], write=True), torch.no_grad():
                reference.copy_(current)
        self._anchored = True

    def reference_state(self) -> list[torch.Tensor]:
        """What ``load_reference`` needs; empty while the reference is the model as loaded. All ranks call it."""
        state: list[torch.Tensor] = []
        for reference, _ in self._reference_pairs() if self._anchored else ():
            with _gathered([reference]):
                state.append(reference.detach().to("cpu", copy=True))
        return state

    def load_reference(self, state: Sequence[torch.Tensor]) -> None:
        """Restores what ``reference_state`` gave.

        Raises:
            LearnerError: a full-weights policy that has moved its reference already cannot go back to the first one.
        """
        if not state and self._anchored and not self.uses_lora:
            raise LearnerError("the checkpoint is older than this engine's reference policy: load it into a new engine")
        for (reference, _), saved in zip(self._reference_pairs(), state, strict=False):
            with _gathered([reference], write=True), torch.no_grad():
                reference.copy_(saved)
        self._anchored = bool(state)

    def place_reference(self, device: torch.device) -> None:
        for model in self._reference:
            model.to(device)

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def merged_state(self, device: torch.device | str = "cpu") -> Iterator[tuple[str, torch.Tensor]]:
        """(Hugging Face name, bfloat16 tensor on ``device``) of every weight, adapters added in; the policy itself is
        not touched.

        With adapters the sum W + (alpha / rank) B A is made in float32 and rounded once. Where ZeRO-3 has partitioned
        the weights, all ranks iterate together: each module's are gathered in turn.
        """
        for name, module in self._causal_lm.named_modules():
            if ".lora_" in name or name.endswith(".base_layer"):
                continue  # parts of a layer with an adapter, which is dealt with as a whole
            layer: Any = module
            has_adapter = hasattr(layer, "lora_A")
            with _gathered(list(layer.parameters(recurse=has_adapter))):
                weights = layer.base_layer.named_parameters() if has_adapter else layer.named_parameters(recurse=False)
                for own, parameter in weights:
                    tensor = parameter.detach()
                    if has_adapter and own == "weight":
                        tensor = tensor.float() + layer.get_delta_weight(_ADAPTER).detach().float()
                    # A copy: gathered memory goes back when the context ends.
                    yield f"{name}.{own}", tensor.to(device, torch.bfloat16, copy=True).contiguous()

    def adapter(self) -> Adapter | None:
        """The trained adapter, on the CPU in float32; None when all weights are trained. All ranks call it together."""
        if not self.uses_lora:
            return None
        parts = {}
        for name, layer in self._named_adapter_layers():
            a, b = layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight
            with _gathered([a, b]):
                parts[name] = (
                    a.detach().to("cpu", torch.float32, copy=True),
                    b.detach().to("cpu", torch.float32, copy=True),
                )
        lora = self._lora
        return Adapter(
            base=model_name(self._base), rank=lora.rank, alpha=lora.alpha, targets=tuple(lora.targets), parts=parts
        )

    def _start_from(self, adapter: Adapter) -> None:
        layers = dict(self._named_adapter_layers())
        if set(layers) != set(adapter.parts):
            raise LearnerError(f"the adapter of {adapter.base} is for other layers than learner.lora.targets")
        with torch.no_grad():
            for name, (a, b) in adapter.parts.items():
                layers[name].lora_A[_ADAPTER].weight.copy_(a)
                layers[name].lora_B[_ADAPTER].weight.copy_(b)

    @property
    def lm_head_weight(self) -> torch.nn.Parameter:
        return self._causal_lm.lm_head.weight

    @property
    def _causal_lm(self) -> Any:
        return self.model.base_model.model if self.uses_lora else self.model

    def _logprobs(self, causal_lm: Any, batch: MicroBatch, temperature: float) -> torch.Tensor:
        hidden = causal_lm.model(
            input_ids=batch.input_ids[None],
            position_ids=batch.position_ids[None],
            use_cache=False,
            segments=batch.segments,
        ).last_hidden_state[0]
        # Only rows that predict a completion token meet the lm_head: prompts are most of the tokens.
        rows = hidden.index_select(0, batch.predict_at)
        return token_logprobs(rows, causal_lm.lm_head.weight, batch.targets, temperature=temperature, chunk=self._chunk)

    def _adapter_layers(self) -> list[Any]:
        return [layer for _, layer in self._named_adapter_layers()]

    def _named_adapter_layers(self) -> list[tuple[str, Any]]:
        return [(name, module) for name, module in self._causal_lm.named_modules() if hasattr(module, "lora_A")]

    def _reference_pairs(self) -> Iterator[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        # (reference's, policy's) parameter, for each that training may change
        if self._reference:
            yield from zip(self._reference[0].parameters(), self.model.parameters(), strict=True)
        for layer in self._adapter_layers() if self.uses_lora else ():
            for part in (layer.lora_A, layer.lora_B):
                if _REFERENCE in part:
                    yield part[_REFERENCE].weight, part[_ADAPTER].weight

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        # peft's own switches also change requires_grad, on parameters that DeepSpeed holds hooks on.
        layers = self._adapter_layers()
        for layer in layers:
            layer._active_adapter = [_REFERENCE]
            layer._disable_adapters = not self._anchored
        try:
            yield
        finally:
            for layer in layers:
                layer._active_adapter = [_ADAPTER]
                layer._disable_adapters = False


def _gathered(parameters: Sequence[torch.nn.Parameter], write: bool = False) -> AbstractContextManager[Any]:
    """Whole parameters inside the context where ZeRO-3 holds them in parts; with ``write``, changes are kept."""
    partitioned = [parameter for parameter in parameters if hasattr(parameter, "ds_id")]
    if not partitioned:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(partitioned, modifier_rank=0 if write else None)


def _started_adapter(model_dir: Path, settings: LearnerSettings) -> Adapter | None:
    """The adapter that is merged into the model, when training can go on with it; else a new one starts on top."""
    folder = model_dir / FOLDER
    if not is_adapter(folder):
        return None
    adapter = read_adapter(folder)
    return adapter if adapter.fits(settings.lora) else None


def _load(model_dir: Path, settings: LearnerSettings) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    attention.register()
    dtype = torch.float32 if settings.dtype == "float32" else torch.bfloat16
    try:
        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype, attn_implementation=attention.NAME)
    except (OSError, ValueError) as error:
        raise LearnerError(f"cannot load model {model_dir}: {str(error).splitlines()[0]}") from error
    if model.lm_head.weight is model.get_input_embeddings().weight:
        raise LearnerError(f"model {model_dir} has tied embeddings: pass it through prepare_model first")
    if getattr(model.lm_head, "bias", None) is not None:
        raise LearnerError(f"model {model_dir} has a bias in lm_head, which the learner does not support")
    return model


def _with_adapters(model: Any, settings: LearnerSettings, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = settings.lora
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets), lora_dropout=0.0, bias="none"
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # A is random, B is zero: the policy starts equal to its reference
        try:
            adapted = get_peft_model(model, config)
            if settings.kl_coefficient > 0:
                adapted.add_adapter(_REFERENCE, config)
                adapted.set_adapter(_ADAPTER)
            return adapted
        except ValueError as error:
            raise LearnerError(
                f"learner.lora.targets {list(lora.targets)} do not fit the model: {str(error).splitlines()[0]}"
            ) from error
