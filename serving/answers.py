"""Answers of models on disk from the moment they arrive: what was paid for is judged, after Ctrl-C too."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from actors.errors import ActorError
from search.types import Completion, Prompt


class AnswerLog:
    """One line an answer: the prompt and the completion, without token ids."""

    def __init__(self, path: Path) -> None:
        """Raises ActorError when the folder cannot be made."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ActorError(f"{path.parent}: cannot be made: {error.strerror}") from error

    def add(self, prompt: Prompt, completion: Completion) -> None:
        """Raises ActorError when the disk does not take it."""
        slim = {k: v for k, v in asdict(completion).items() if k not in ("prompt_token_ids", "token_ids", "logprobs")}
        line = json.dumps({"prompt": asdict(prompt), "completion": slim})
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise ActorError(f"{self.path}: cannot be written: {error.strerror}") from error

    def read(self) -> list[tuple[Prompt, Completion]]:
        """All answers in the order of arrival; a line that a kill cut is passed over."""
        found = []
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                body = json.loads(line)
            except ValueError:
                continue
            prompt = body["prompt"] | {
                "messages": tuple(body["prompt"]["messages"]),
                "exemplar_ids": tuple(body["prompt"]["exemplar_ids"]),
            }
            found.append((Prompt(**prompt), Completion(**body["completion"])))
        return found
