"""The LightningModule: a reward model, a weighted pairwise loss, one optimiser step per batch of token-bounded chunks.

Optimisation is manual because a batch is one optimiser step whose chunks are run and freed one after another: the memory bound
(`batch.tokens`) and the pairs of a step (`batch.pairs`) are set apart, and how a step was cut changes nothing but the draws
of dropout.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from scpo.data.datamodule import Chunk, PairSet
from scpo.dro import GroupDRO
from scpo.errors import UserError
from scpo.losses import bradley_terry, gap_margin
from scpo.metrics.modules import GroupAccuracy
from scpo.model.reward import RewardNetwork

MONITORS = {"val/loss": "min", "val/accuracy": "max", "val/accuracy_micro": "max"}
"""What can be monitored, and whether less or more is better. `val/accuracy` is the mean over groups."""


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of one step's dropout on one process."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))


class RewardModule(L.LightningModule):
    """Trains a reward model on pairs.

    Args:
        model: the reward model.
        groups: all groups, by code; logged on every process whether present or not.
        optimizer: from groups of parameters (torch's dictionaries) to an optimiser: the network's first, then what is learned
            for each group of a steered model.
        schedule: from (optimiser, total steps) to a learning-rate scheduler, stepped after every optimiser step.
        pairs_per_step: the fixed number that a step's summed loss is divided by.
        total_steps: the length of the schedule.
        margin: scale of the score gap that rewards are asked to keep (0: none).
        centering: coefficient of the squared sum of the two rewards (0: none).
        clip: largest norm of the gradient (0: no clipping).
        seed: of dropout, which each step draws anew from (seed, step, process), so that a resumed training draws the same.
        steering_lr_scale: learning rate of what is learned for each group, over that of the network. A group's own weights
            see only the group's pairs, so they need larger steps.
        dro: the groups' weights of group DRO, or None.
    """

    def __init__(
        self,
        model: RewardNetwork,
        groups: list[str],
        *,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        schedule: Callable[[torch.optim.Optimizer, int], Any],
        pairs_per_step: float,
        total_steps: int,
        margin: float = 0.0,
        centering: float = 0.0,
        clip: float = 0.0,
        seed: int = 0,
        steering_lr_scale: float = 1.0,
        dro: GroupDRO | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        # Frozen weights are not in the checkpoint (see on_save_checkpoint); what is missing is checked on loading.
        self.strict_loading = False
        self.model = model
        self.groups = list(groups)
        self.make_optimizer, self.make_schedule = optimizer, schedule
        self.pairs_per_step, self.total_steps = float(pairs_per_step), int(total_steps)
        self.margin, self.centering, self.clip = float(margin), float(centering), float(clip)
        self.seed = int(seed)
        self.steering_lr_scale = float(steering_lr_scale)
        self.dro = dro
        self.val_accuracy = GroupAccuracy(self.groups)
        self.pairs_seen, self.candidates_encoded, self.seconds = 0, 0, 0.0
        self.totals: tuple[int, int] | None = None
        self._mark: float | None = None
        self._unchecked = {"all", "the adapters'", "the groups'"}

    def configure_optimizers(self) -> Any:
        """The optimiser over what is trained, and its schedule by steps."""
        own = [p for p in self.model.steering.parameters() if p.requires_grad] if self.model.steering else []
        ids = {id(p) for p in own}
        shared = [p for p in self.parameters() if p.requires_grad and id(p) not in ids]
        optimizer = self.make_optimizer([{"params": params} for params in (shared, own) if params])
        if own:
            optimizer.param_groups[-1]["lr"] *= self.steering_lr_scale
        return [optimizer], [{"scheduler": self.make_schedule(optimizer, self.total_steps), "interval": "step"}]

    def pair_losses(self, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, chosen and rejected rewards of a chunk's pairs, each (n_pairs,)."""
        rewards = self.model(**chunk["inputs"])
        chosen, rejected = rewards[chunk["chosen"]], rewards[chunk["rejected"]]
        margin = gap_margin(chunk["gap"], self.margin) if self.margin else None
        return (
            bradley_terry(chosen, rejected, chunk["weight"], margin=margin, centering=self.centering),
            chosen.detach(),
            rejected.detach(),
        )

    def training_step(self, batch: list[Chunk], batch_idx: int) -> None:
        """One optimiser step. The loss of the step is the weighted sum over its pairs divided by the fixed `pairs_per_step`."""
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        torch.manual_seed(step_seed(self.seed, self.global_step, self.global_rank))
        # DDP takes the mean of the ranks' gradients; each rank holds a part of the sum.
        scale = self.trainer.world_size / self.pairs_per_step
        total = torch.zeros((), device=self.device)
        sums = torch.zeros(5, device=self.device)  # margins, correct pairs, pairs, rewards, squared rewards
        for i, chunk in enumerate(batch):
            last = i == len(batch) - 1
            with self._no_sync(not last):
                losses, chosen, rejected = self.pair_losses(chunk)
                self._check_finite(losses, chunk, self.trainer.datamodule.train)  # type: ignore[attr-defined]
                if self.dro is not None:
                    self.dro.add(losses, chunk["group"])
                    losses = losses * self.dro.weights(chunk["group"])
                loss = losses.sum() * scale
                self.manual_backward(loss)
            total += loss.detach()
            both = torch.cat([chosen, rejected])
            sums += torch.stack(
                [
                    (chosen - rejected).sum(),
                    (chosen > rejected).sum(),
                    losses.new_tensor(len(losses)),
                    both.sum(),
                    both.square().sum(),
                ]
            )
            self.pairs_seen += len(losses)
            self.candidates_encoded += len(chunk["inputs"]["input_ids"])
        if not batch:
            # This rank has no comparison in the step, but the others wait for its part of the gradient.
            self.manual_backward(sum((p.sum() * 0.0 for p in self.parameters() if p.requires_grad), total))
        self._check_gradients(float(total), batch)
        if self.clip > 0:
            torch.nn.utils.clip_grad_norm_([p for p in self.parameters() if p.requires_grad], self.clip)
        optimizer.step()
        schedule: Any = self.lr_schedulers()
        schedule.step()
        if self.dro is not None:
            self.dro.step(self._over_processes(self.dro.sums.clone()))
            self.log_dict({f"dro/{group}": q for group, q in zip(self.groups, self.dro.q.tolist(), strict=True)})
        self._log_step(total, sums, schedule.get_last_lr()[0])
        now = time.perf_counter()
        self.seconds += now - self._mark if self._mark is not None else 0.0
        self._mark = now

    def validation_step(self, batch: list[Chunk], batch_idx: int) -> None:
        """Adds the batch's pairs to sums; nothing is averaged before the end."""
        for chunk in batch:
            losses, chosen, rejected = self.pair_losses(chunk)
            self._check_finite(losses, chunk, self.trainer.datamodule.val)  # type: ignore[attr-defined]
            self.val_accuracy.update(chosen - rejected, chunk["group"])
            parts = [losses.sum(), chunk["weight"].sum(), (chosen - rejected).sum()]
            self._val_sums += torch.tensor([*(float(part) for part in parts), len(losses)], dtype=torch.float64)

    def on_train_end(self) -> None:
        """Add the counts up while the module is still on its device: afterwards Lightning moves it to the CPU."""
        self.totals = self.counts()

    def on_validation_epoch_start(self) -> None:
        # On the CPU, and moved where the processes talk: Apple's GPU has no float64.
        self._val_sums = torch.zeros(4, dtype=torch.float64)

    def on_validation_epoch_end(self) -> None:
        """Logs the same names on every process, whatever groups it saw."""
        sums = self._over_processes(self._val_sums.to(self.device) if self.trainer.world_size > 1 else self._val_sums)
        loss, weight, margin, pairs = sums.tolist()
        values = self.val_accuracy.compute()
        named = {f"val/accuracy/{group}": values[group] for group in self.groups}
        named |= {"val/accuracy": values["macro"], "val/loss": torch.tensor(loss / max(weight, 1e-12))}
        named |= {"val/margin": torch.tensor(margin / max(pairs, 1.0))}
        # All processes hold the same numbers already, whose mean they are; without sync_dist Lightning warns of each.
        self.log_dict({**named, "val/accuracy_micro": values["micro"]}, sync_dist=True)
        self.val_accuracy.reset()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._mark is None:
            self._mark = time.perf_counter()

    def on_validation_start(self) -> None:
        self._mark = None  # the clock of training stands still until the next batch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave frozen weights out, add the counters."""
        self._mark = None
        frozen = {name for name, p in self.named_parameters() if not p.requires_grad}
        checkpoint["state_dict"] = {k: v for k, v in checkpoint["state_dict"].items() if k not in frozen}
        pairs, candidates = self.counts()
        checkpoint["scpo"] = {"pairs_seen": pairs, "candidates_encoded": candidates, "seconds": self.seconds}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that lacks a trained weight."""
        trained = {name for name, p in self.named_parameters() if p.requires_grad}
        trained |= {"dro.q"} if self.dro is not None else set()
        missing = sorted(trained - set(checkpoint["state_dict"]))
        if missing:
            raise UserError(
                f"the checkpoint lacks {len(missing)} trained weights (such as {missing[0]}); it is of another model"
            )
        counters = checkpoint["scpo"]
        self.seconds = counters["seconds"]
        # The counts are those of all processes, so one process goes on from them.
        first = self.trainer.global_rank == 0
        self.pairs_seen = counters["pairs_seen"] if first else 0
        self.candidates_encoded = counters["candidates_encoded"] if first else 0

    def counts(self) -> tuple[int, int]:
        """Pairs seen and candidates encoded in training, over all processes; to be called on all of them."""
        sums = torch.tensor([self.pairs_seen, self.candidates_encoded], device=self.device)
        pairs, candidates = self._over_processes(sums).tolist()
        return pairs, candidates

    def _over_processes(self, sums: Tensor) -> Tensor:
        """Numbers added up over the processes, in place."""
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(sums)
        return sums

    def _log_step(self, loss: Tensor, sums: Tensor, rate: float) -> None:
        """Logs means over the pairs of the whole step, not means of the ranks' means."""
        if self.trainer.world_size > 1:
            sums = self._over_processes(torch.cat([sums, loss[None] / self.trainer.world_size]))
            loss = sums[5]
        pairs = max(1, int(sums[2]))
        mean = sums[3] / (2 * pairs)
        values: dict[str, Any] = {
            "train/margin": sums[0] / pairs,
            "train/accuracy": sums[1] / pairs,
            "train/reward_mean": mean,
            "train/reward_std": (sums[4] / (2 * pairs) - mean.square()).clamp(min=0).sqrt(),
            "train/lr": rate,
        }
        self.log("train/loss", loss, prog_bar=True, batch_size=pairs)
        self.log_dict(values, batch_size=pairs)

    def _no_sync(self, wanted: bool) -> contextlib.AbstractContextManager[None]:
        if wanted and self.trainer.world_size > 1:
            return self.trainer.strategy.block_backward_sync()  # type: ignore[attr-defined]
        return contextlib.nullcontext()

    def _check_finite(self, losses: Tensor, chunk: Chunk, data: PairSet) -> None:
        bad = (~torch.isfinite(losses)).nonzero().flatten().tolist()
        if bad:
            names = "; ".join(data.describe(int(chunk["pair"][i])) for i in bad[:3])
            raise UserError(
                f"the loss is not finite at step {self.global_step} for {len(bad)} pairs ({names}); lower optim.lr, set "
                "trainer.gradient_clip_val, or train in float32"
            )

    def _check_gradients(self, loss: float, batch: list[Chunk]) -> None:
        """At the first step: a training whose gradients are all zero trains nothing, and would say so nowhere.

        Adapters are looked at apart: with gradient checkpointing and inputs without gradients the head alone would learn.
        What is learned for each group is looked at in the first step that names a group.
        """
        if not self._unchecked or (loss == 0.0 and any(bool(chunk["weight"].any()) for chunk in batch)):
            return  # pairs that are ranked right by far have a loss of exactly 0, and no gradient
        trained = {name: p.grad for name, p in self.named_parameters() if p.requires_grad}
        which: dict[str, list[Tensor | None]] = {
            "all": list(trained.values()),
            "the adapters'": [gradient for name, gradient in trained.items() if ".lora_" in name],
            "the groups'": [gradient for name, gradient in trained.items() if name.startswith("model.steering.")],
        }
        named = any(bool((chunk["inputs"]["group"] >= 0).any()) for chunk in batch if "group" in chunk["inputs"])
        # With a frozen network all that is trained is the groups' as well.
        waits = {"the groups'", *(["all"] if len(which["all"]) == len(which["the groups'"]) else [])}
        for what in sorted(self._unchecked):
            if what in waits and which[what] and not named:
                continue
            self._unchecked.discard(what)
            if which[what] and all(g is None or not bool(g.any()) for g in which[what]):
                raise UserError(
                    f"{what} gradients are zero at the first step, so nothing would be trained; with adapters and gradient "
                    "checkpointing the inputs need gradients; or every pair of the step has weight 0"
                )
