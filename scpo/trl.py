"""A reward model as a reward function of TRL's trainers: ``GRPOTrainer(reward_funcs=[reward_function(model)], ...)``.

TRL itself is not imported: a reward function there is any callable of prompts, completions and the dataset's columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scpo.data.encode import Turn
from scpo.data.turns import as_prompt, messages
from scpo.errors import UserError, did_you_mean
from scpo.io import shown
from scpo.mixture import Steer, check_aggregate
from scpo.serve import RewardModel

RewardFunction = Callable[..., list[float]]


def reward_function(
    model: RewardModel,
    *,
    group_column: str | None = "group",
    prompt_column: str | None = None,
    aggregate: str | None = None,
    name: str | None = None,
) -> RewardFunction:
    """A function for ``reward_funcs`` that scores each completion under the group of its row.

    Args:
        model: serves the rewards, on its own device.
        group_column: the dataset column that holds each row's group: a name, null, weights of groups, or a list of groups.
            None: no completion has a group.
        prompt_column: a column to read the prompts from instead of `prompt`, where that is a string into which a chat
            template is written already: the reward model formats the prompt itself.
        aggregate: `mean` or `min`, for the rows whose group is a list.
        name: under which TRL logs the rewards; by default ``scpo``.

    Returns:
        ``f(prompts, completions, **columns) -> list[float]``. Prompts are texts, or lists of messages of which the last is
        the user's; completions are texts, or lists of messages of which the last is the assistant's. Raises UserError for a
        column that is not there, anything of another form, a group that the model does not know, and a completion that is
        too long for a model trained with overlong=drop, which has no reward that training could leave out.

    Raises:
        UserError: no group column for a model whose rewards without a group were not trained for.
    """
    check_aggregate(aggregate)
    if group_column is None:
        _check_default(model, "group_column: expected the column that holds each row's group, found None")

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        asked = prompts if prompt_column is None else _column(columns, prompt_column, len(completions))
        groups: list[Steer] = [None] * len(completions)
        if group_column is not None:
            groups = [_steer(group) for group in _column(columns, group_column, len(completions))]
        if None in groups:
            _check_default(model, f"row {groups.index(None)}: column {group_column!r}: expected a group, found null")
        exchanges = [_prompt(prompt, f"row {row}", prompt_column or "prompt") for row, prompt in enumerate(asked)]
        texts = [_completion(completion, f"row {row}") for row, completion in enumerate(completions)]
        rewards = model.score_rows(
            [prompt for prompt, _ in exchanges],
            texts,
            groups,
            [history for _, history in exchanges],
            aggregate=aggregate,
        ).tolist()
        for row, value in enumerate(rewards):
            if math.isnan(value):
                raise UserError(
                    f"row {row}: expected a text of at most the reward model's length, found a longer one (completion "
                    f"{shown(texts[row])}); shorten max_completion_length, or load the model with a larger max_length"
                )
        return rewards

    reward.__name__ = reward.__qualname__ = name or "scpo"
    return reward


def _check_default(model: RewardModel, found: str) -> None:
    """Raise UserError where rewards without a group were not trained for: a policy would follow what they happen to be."""
    if not model.has_default:
        raise UserError(
            f"{found}; {model.folder} has no default: name one of {', '.join(model.groups)}{model.steerer.or_mixture()}"
        )


def _column(columns: Mapping[str, Any], name: str, n: int) -> list[Any]:
    """One entry of a dataset column for each completion."""
    # The trainer passes other things beside the columns, such as its state; a column is a list.
    found = {
        key: value for key, value in columns.items() if isinstance(value, list | tuple) and key != "completion_ids"
    }
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        hint = did_you_mean(name, found) if "Did you" in did_you_mean(name, found) else ""
        raise UserError(
            f"reward_function: expected the column {name!r} in the dataset, found the columns {known}.{hint} Add it, or name "
            "another with group_column or prompt_column"
        )
    if len(found[name]) != n:
        raise UserError(f"reward_function: column {name!r}: expected {n} entries, found {len(found[name])}")
    return list(found[name])


def _steer(group: Any) -> Steer:
    """A cell of the group column. A dataset stores weights as one struct for all rows: what a row does not name is null."""
    if isinstance(group, Mapping):
        return {name: weight for name, weight in group.items() if weight is not None}
    return group


def _prompt(prompt: Any, place: str, column: str) -> tuple[str, list[Turn]]:
    """The user's last message, and the turns before it."""
    if isinstance(prompt, str):
        return prompt, []
    *history, last = as_prompt(messages(prompt, place, column), place, column)
    return last["content"], list(history)


def _completion(completion: Any, place: str) -> str:
    """What the assistant said."""
    if isinstance(completion, str):
        return completion
    said = messages(completion, place, "completion")
    if not said or said[-1]["role"] != "assistant":
        roles = " ".join(message["role"] for message in said) or "none"
        raise UserError(
            f"{place}: completion: expected messages that end with the assistant's, found the roles {roles}"
        )
    return said[-1]["content"]
