"""Best-of-n and GRPO towards two countries: how the planted traits of a policy's outputs move apart.

    python experiments/steering/rl/rl.py --model RUN/model --data demo/data --truth demo/raw/truth --seed 0

A tiny language model learns to write the embedded world's responses, all countries alike. Then each country's rewards pick
the best of n of its outputs, and train a copy of it with TRL's GRPO. Traits are counted by the phrases that the world is made
of, so no reward model judges itself. The table goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import scpo
from scpo.data.simulate.phrases import TRAIT_PATTERNS
from scpo.model.tiny import train_tokenizer
from scpo.trl import reward_function

COMPLETION = 72
"""Most tokens of an output."""

BATCH = 16
"""Texts in a step of the language model's training."""

Texts = list[str]


def say(line: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(line + "\n")


def trait_finders() -> dict[str, re.Pattern[str]]:
    """For each planted trait the ways in which its sentences begin; numbers stand for any number."""
    found = {}
    for trait, patterns in TRAIT_PATTERNS.items():
        openings = sorted({opening.lower() for pattern in patterns for opening in pattern[0]}, key=len, reverse=True)
        words = [re.sub(r"\\\{[npy]\\\}", r"\\d+", re.escape(opening)) for opening in openings]
        found[trait] = re.compile(r"(?<!\w)(?:" + "|".join(words) + ")")
    return found


def count_traits(texts: Sequence[str]) -> np.ndarray:
    """Sentences of each trait in each text, (n_texts, n_traits)."""
    finders = trait_finders()
    return np.array([[len(finder.findall(text.lower())) for finder in finders.values()] for text in texts])


def check_counts(data: pd.DataFrame, truth: Path) -> float:
    """Share of (response, trait) cells in which the phrases count what was planted, over 2,000 responses."""
    rows = data.sample(2000, random_state=0)
    planted = pd.read_parquet(truth / "utterances.parquet").set_index("utterance_id").loc[rows["candidate_id"]]
    strengths = planted[[f"trait_{trait}" for trait in TRAIT_PATTERNS]].to_numpy()
    return float((count_traits(list(rows["response"])) == strengths).mean())


def make_policy(data: pd.DataFrame, folder: Path, steps: int, seed: int) -> None:
    """Train a causal language model on prompts and responses, and save it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rows = data[data["response"].str.len() > 0].sample(10_000, random_state=seed)
    tokenizer = train_tokenizer(rows["response"].head(5000), 2048)
    tokenizer.eos_token = "[SEP]"  # [CLS] prompt [SEP] response [SEP]
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.cls_token_id}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256}
    config = LlamaConfig(
        **sizes,
        **heads,
        **ids,
        eos_token_id=tokenizer.sep_token_id,
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    rng = np.random.default_rng(seed)
    encoded = tokenizer(list(rows["prompt"]), list(rows["response"]), truncation=True, max_length=128)["input_ids"]
    loss = torch.tensor(float("nan"))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 20) * (1 - step / steps)
        texts = [encoded[i] for i in rng.integers(0, len(encoded), BATCH)]
        inputs = tokenizer.pad({"input_ids": texts}, return_tensors="pt")
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        loss = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    say(f"policy: {steps} steps of {BATCH} responses, loss {loss.item():.2f}")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write(model: Any, tokenizer: Any, prompts: Sequence[str], seed: int) -> Texts:
    """One sampled output for each prompt."""
    torch.manual_seed(seed)
    texts: Texts = []
    for start in range(0, len(prompts), 200):
        inputs = tokenizer(list(prompts[start : start + 200]), padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            out = model.generate(**inputs, do_sample=True, max_new_tokens=COMPLETION)
        texts += tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return [text.strip() for text in texts]


def grpo(reward: Any, policy: Path, prompts: Sequence[str], group: str, steps: int, seed: int, out: Path) -> Any:
    """A copy of the policy after some steps of GRPO under one group's rewards."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        model=str(policy),
        reward_funcs=[reward],
        train_dataset=Dataset.from_dict({"prompt": list(prompts), "group": [group] * len(prompts)}),
        args=GRPOConfig(
            output_dir=str(out),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            max_steps=steps,
            per_device_train_batch_size=48,
            num_generations=8,
            max_completion_length=COMPLETION,
            learning_rate=5e-4,
            beta=0.02,
            save_strategy="no",
            logging_steps=10,
            disable_tqdm=True,
            seed=seed,
        ),
    )
    trainer.remove_callback(PrinterCallback)  # stdout is for the table
    trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    say(f"grpo, {group}: {steps} steps, reward {rewards[0]:.2f} to {rewards[-1]:.2f}")
    return trainer.model


def utilities(counts: np.ndarray, truth: Path, groups: Sequence[str]) -> np.ndarray:
    """What each group's planted weights give the outputs, (n_groups, n_texts): a trait counts at most twice, as planted."""
    world = json.loads((truth / "world.json").read_text(encoding="utf-8"))
    weights = np.array(
        [[world["global_weights"].get(t, 0) + world["shifts"][g].get(t, 0) for t in TRAIT_PATTERNS] for g in groups]
    )
    return weights @ np.minimum(counts, 2).T


def table(arms: dict[str, Texts], truth: Path, groups: Sequence[str]) -> str:
    """Markdown: sentences per output of each trait that the two countries weigh differently, and the planted utilities."""
    world = json.loads((truth / "world.json").read_text(encoding="utf-8"))
    first, second = (world["shifts"][group] for group in groups)
    traits = [t for t in TRAIT_PATTERNS if first.get(t, 0) != second.get(t, 0)]
    weights = [[world["global_weights"].get(t, 0) + world["shifts"][g].get(t, 0) for t in traits] for g in groups]
    lines = [
        "| outputs | n | " + " | ".join(traits) + " | " + " | ".join(f"utility for {g}" for g in groups) + " |",
        "|---|" + "---:|" * (1 + len(traits) + len(groups)),
    ]
    for group, planted in zip(groups, weights, strict=True):
        lines.append(f"| planted weight, {group} | | " + " | ".join(f"{w:+.1f}" for w in planted) + " | | |")
    for name, texts in arms.items():
        counts = count_traits(texts)
        shown = counts[:, [list(TRAIT_PATTERNS).index(t) for t in traits]]
        useful = utilities(counts, truth, groups)
        error = useful.std(axis=1, ddof=1) / len(texts) ** 0.5
        cells = [f"{value:.2f}" for value in shown.mean(axis=0)]
        cells += [f"{mean:+.2f} ± {e:.2f}" for mean, e in zip(useful.mean(axis=1), error, strict=True)]
        lines.append(f"| {name} | {len(texts)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run everything for one seed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="a steered reward model, RUN/model")
    p.add_argument("--data", type=Path, default=Path("demo/data"))
    p.add_argument("--truth", type=Path, default=Path("demo/raw/truth"))
    p.add_argument("--groups", nargs=2, default=["Chile", "Mexico"], help="the two countries")
    p.add_argument("--n", type=int, default=8, help="of best-of-n")
    p.add_argument("--prompts", type=int, default=200, help="test prompts")
    p.add_argument("--steps", type=int, default=30, help="of GRPO")
    p.add_argument("--pretraining", type=int, default=400, help="steps of the language model's training")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    from transformers import AutoModelForCausalLM, AutoTokenizer

    started = time.perf_counter()
    data = pd.read_parquet(args.data / "comparisons.parquet")
    rng = np.random.default_rng(args.seed)
    split = {name: sorted(set(data.loc[data["split"] == name, "prompt"])) for name in ("val", "test")}
    asked = list(rng.choice(split["test"], args.prompts, replace=False))
    model = scpo.RewardModel.from_pretrained(args.model)
    with tempfile.TemporaryDirectory() as name:
        policy = Path(name) / "policy"
        make_policy(data[data["split"] == "train"], policy, args.pretraining, args.seed)
        tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
        start = AutoModelForCausalLM.from_pretrained(policy)
        drawn = write(start, tokenizer, [prompt for prompt in asked for _ in range(args.n)], args.seed)
        arms = {"start": drawn[:: args.n]}
        for group in args.groups:
            best = [
                model.best_of_n(prompt, drawn[i * args.n : (i + 1) * args.n], group) for i, prompt in enumerate(asked)
            ]
            arms[f"best of {args.n}, {group}"] = [choice.response for choice in best]
        for group in args.groups:
            trained = grpo(
                reward_function(model), policy, split["val"], group, args.steps, args.seed, Path(name) / "grpo"
            )
            arms[f"GRPO, {group}"] = write(trained.eval(), tokenizer, asked, args.seed)
    for name, texts in arms.items():
        say(f"{name}: {texts[0]}")
    agree = check_counts(data, args.truth)
    print(table(arms, args.truth, args.groups))
    print(f"\nSeed {args.seed}; phrases count the planted strength in {agree:.1%} of 20,000 cells.", end=" ")
    print(f"{time.perf_counter() - started:.0f} s, {time.process_time():.0f} s of them on the processor.")


if __name__ == "__main__":
    main()
