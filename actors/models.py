"""Several models as one: each prompt goes to the model that it names, endpoints and the local policy side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from actors.endpoint import EndpointModel
from search.operators import estimate_tokens
from search.types import Completion, Prompt

POLICY = "policy"
"""Name of the local policy."""


class Policy(Protocol):
    """What is needed of actors.pools.RolloutPool."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]: ...

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int: ...


class Models:
    """Names are those of the endpoints, and "policy" for the local one. May be empty: then nothing can be asked."""

    def __init__(self, endpoints: Sequence[EndpointModel] = (), policy: Policy | None = None) -> None:
        """Raises ValueError for two endpoints of one name."""
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        if len(self._endpoints) != len(endpoints) or (policy is not None and POLICY in self._endpoints):
            raise ValueError(f"two models of one name among {[endpoint.name for endpoint in endpoints]}")
        self._policy = policy

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._endpoints, *((POLICY,) if self._policy is not None else ()))

    def is_local(self, name: str) -> bool:
        return name not in self._endpoints

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """The completions of each prompt, in the prompts' order. Raises as ``stream``."""
        found: dict[str, list[Completion]] = {prompt.prompt_id: [] for prompt in prompts}
        for completion in self.stream(prompts):
            found[completion.prompt_id].append(completion)
        return [completion for group in found.values() for completion in group]

    def stream(self, prompts: Sequence[Prompt]) -> Iterator[Completion]:
        """Completions as they come: one of each prompt from an endpoint, a group from the policy.

        Raises ModelError and ActorError of the models, KeyError for a model that is not there.
        """
        shares: dict[str, list[Prompt]] = {}
        for prompt in prompts:
            if prompt.model not in self.names:
                raise KeyError(prompt.model)
            shares.setdefault(prompt.model, []).append(prompt)
        arrived: queue.SimpleQueue[Completion | Exception | None] = queue.SimpleQueue()
        over = threading.Event()

        def ask(endpoint: EndpointModel, share: Sequence[Prompt]) -> None:
            try:
                for completion in endpoint.stream(share):
                    arrived.put(completion)
                    if over.is_set():
                        return
                arrived.put(None)
            except Exception as error:  # raised again where the caller is
                arrived.put(error)

        remote = [(self._endpoints[name], share) for name, share in shares.items() if name in self._endpoints]
        for endpoint, share in remote:
            threading.Thread(target=ask, args=(endpoint, share), daemon=True).start()
        try:
            if self._policy is not None and POLICY in shares:
                yield from self._policy.generate(shares[POLICY])
            running = len(remote)
            while running:
                item = arrived.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            over.set()

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """As the policy reads them where there is one; an estimate otherwise."""
        if self._policy is not None:
            return self._policy.count_tokens(messages)
        return sum(estimate_tokens(message["content"]) for message in messages)

    def close(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()
