"""Engines side by side: prompts in, completions out, new weights into all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from actors.elastic import Bounds
from actors.errors import ActorError
from actors.ledger import Work
from actors.member import Member
from actors.pool import Pool
from actors.rollout import REFUSED, RolloutActor, engine_env
from actors.seats import Role, State
from actors.settings import RolloutSettings, Timeouts
from actors.types import Failure
from learner.types import WeightsVersion
from search.types import Completion, Prompt


class RolloutPool:
    """A pool of rollout actors.

    pool = RolloutPool(prepare_model("smollm2-135m-instruct"), settings, timeouts, seed=0)
    completions = pool.generate(prompts)      # group_size of each prompt, in order
    pool.load_weights(learner.publish(folder))
    """

    actor_class: type[Member] = RolloutActor
    """What the members are: something with ``generate``, ``load_weights`` and ``probe``."""

    def __init__(
        self,
        model_dir: Path,
        settings: RolloutSettings,
        timeouts: Timeouts,
        *,
        seed: int,
        role: Mapping[str, Any] | None = None,
        asks: bool = False,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        """Begins to start the engines; the first use waits for them.

        Args:
            model_dir: what ``prepare_model`` returned.
            seed: of the run; a prompt's completions follow from (seed, prompt_id) and the weights.
            role: fields of Role that this run sets: places, resources.
            asks: as of Bounds.
            on_event: is given one line for each lost engine and each refused prompt.
        """
        self._model_dir = Path(model_dir)
        self._settings = settings
        self._timeouts = timeouts
        self._say = on_event or (lambda line: None)
        settled = Role(
            name="rollout engine",
            actor_class=self.actor_class,
            start={"model_dir": str(model_dir), "settings": settings, "seed": seed},
            num_gpus=settings.gpus,
            env=engine_env(settings),
            **(role or {}),
        )
        self._pool = Pool(
            settled,
            settings.actors,
            timeouts,
            max_retries=settings.max_retries,
            bounds=Bounds(least=settings.actors, most=max(settings.actors, settings.max_actors), asks=asks),
            on_event=on_event,
        )
        self._calls = itertools.count()
        self.policy_version = 0

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """``settings.group_size`` completions of each prompt (``samples`` where it says so), in the prompts' order.

        A prompt that leaves no room for an answer comes back as completions with ``finish_reason`` "refused".

        Raises:
            ValueError: two prompts with one prompt_id.
            ActorError: the engines fail, or none is left and none could be started.
        """
        groups = dict(self.stream(prompts))
        return [completion for prompt in prompts for completion in groups[prompt.prompt_id]]

    def stream(self, prompts: Sequence[Prompt]) -> Iterator[tuple[str, list[Completion]]]:
        """(prompt_id, its group) as engines complete them. Raises as ``generate``."""
        if len({prompt.prompt_id for prompt in prompts}) != len(prompts):
            raise ValueError("two prompts have one prompt_id: their completions could not be told apart")
        call = next(self._calls)
        works = [
            Work(
                work_id=("generate", call, number),
                method="generate",
                kwargs={"prompts": share},
                timeout=self._timeouts.rollout,
            )
            for number, share in enumerate(self._shares(prompts))
        ]
        for outcome in self._pool.run(works):
            completions = _value(outcome.value, "sampling completions")
            for prompt_id, group in itertools.groupby(completions, key=lambda completion: completion.prompt_id):
                found = list(group)
                if found[0].finish_reason == REFUSED:
                    self._say(f"prompt {prompt_id} refused: {found[0].reason}")
                yield prompt_id, found

    def load_weights(self, version: WeightsVersion) -> None:
        """Puts a version into every engine, and into each replacement before it is used.

        Raises:
            ActorError: it does not fit the model (the engines keep the old one), or no engine took it.
        """
        # The hash too: a resumed run may publish another version 3.
        key = (version.policy_version, version.sha256)
        self._pool.set_state(
            State(key=key, method="load_weights", kwargs={"version": version}, timeout=self._timeouts.sync)
        )
        self.policy_version = version.policy_version

    def probe(self, token_ids: Sequence[int]) -> list[tuple[float, ...]]:
        """log p of tokens 1 .. n-1 of a text (nats, temperature 1), by each engine. Raises as ``generate``."""
        values = self._pool.broadcast("probe", {"token_ids": tuple(token_ids)}, self._timeouts.sync)
        return [_value(value, "probing an engine") for value in values]

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a chat as the engine would be given it; needs no engine."""
        encoded = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=True
        )
        return len(encoded["input_ids"])

    def wait_ready(self) -> None:
        """Until all engines are ready. Raises as ``generate``."""
        self._pool.wait_ready()

    def resize(self, actors: int) -> None:
        """From now on so many engines; those that are too many finish what they have."""
        self._pool.resize(actors)

    @property
    def pids(self) -> list[int]:
        """Processes of the engines that are ready."""
        return [birth.pid for birth in self._pool.births()]

    def close(self) -> None:
        """Ends the engines within ``timeouts.shutdown``."""
        self._pool.close()

    def __enter__(self) -> RolloutPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._model_dir)

    def _shares(self, prompts: Sequence[Prompt]) -> list[list[Prompt]]:
        # One call an engine: a large batch is what makes an engine fast. For those that may yet come, one too: what
        # waits is what makes a pool grow, and a prompt's answers do not depend on what it is batched with.
        count = max(self._pool.size, self._settings.max_actors)
        shares = [list(prompts[start::count]) for start in range(count)]
        return [share for share in shares if share]


def _value(value: Any, doing: str) -> Any:
    if isinstance(value, Failure):
        raise value.error or ActorError(f"{doing} failed: {value.kind}: {value.message}")
    return value
