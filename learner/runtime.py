"""Starts and stops DeepSpeed in this process, without its launcher: one process is one rank."""

from __future__ import annotations

import dataclasses
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from learner.errors import LearnerError
from learner.losses import LossSums
from learner.policy import Policy
from learner.settings import LearnerSettings

JOIN_SECONDS = 120
"""Longest wait for all ranks to meet."""


def start_distributed(work_dir: Path, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
    """Joins the process group: gloo on a CPU, NCCL on GPUs. Does nothing when this process is in one already.

    Raises:
        LearnerError: several ranks without a port, or they did not meet within ``JOIN_SECONDS``.
    """
    if torch.distributed.is_initialized():
        return
    if world_size > 1 and not master_port:
        raise LearnerError(f"{world_size} ranks need a master_port to meet at, got 0")
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK="0",
        LOCAL_SIZE="1",
        MASTER_ADDR=master_addr,
        MASTER_PORT=str(master_port or _free_port()),
        # Builds of extensions take a lock that outlives a killed process and then hangs every later start: each job
        # has its own.
        TORCH_EXTENSIONS_DIR=str(work_dir / "torch_extensions"),
        DS_IGNORE_CUDA_DETECTION="1",
    )
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel("WARNING")  # its INFO lines go to stdout
    if not on_gpu:
        # Otherwise init_distributed compiles it, for more than 100 s; gloo does the same work.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    try:
        deepspeed.init_distributed(
            dist_backend="nccl" if on_gpu else "gloo",
            auto_mpi_discovery=False,
            verbose=False,
            timeout=timedelta(seconds=JOIN_SECONDS),
            rank=rank,
            world_size=world_size,
        )
    except (RuntimeError, ValueError) as error:
        raise LearnerError(
            f"rank {rank} of {world_size} could not join at {master_addr}:{os.environ['MASTER_PORT']}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def stop_distributed() -> None:
    """Leaves the process group, if there is one."""
    if torch.distributed.is_initialized():
        import deepspeed.comm

        deepspeed.comm.destroy_process_group()


def set_threads(count: int) -> None:
    """Sets torch's CPU threads; 0 means all cores this process may run on. A Ray worker is started with
    OMP_NUM_THREADS set to its share, usually 1, which this overrides."""
    torch.set_num_threads(count or len(os.sched_getaffinity(0)))


def start_deepspeed(policy: Policy, settings: LearnerSettings) -> Any:
    """A DeepSpeed engine around ``policy`` that leaves gradient accumulation to its caller.

    Every ``backward`` adds to the gradients; ``step`` reduces, clips and applies them.
    """
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Micro batches differ in number and in tokens from step to step.
        "managed_gradient_accumulation": False,
        "gradient_clipping": settings.grad_clip,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "zero_optimization": zero_optimization(settings),
        # The optimizer is torch's: DeepSpeed's own for the host would be compiled first.
        "zero_force_ds_cpu_optimizer": False,
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": settings.lr,
                "betas": [0.9, 0.95],
                "weight_decay": settings.weight_decay,
                "torch_adam": True,  # DeepSpeed's own would be compiled first
            },
        },
        "steps_per_print": None,
    }
    parameters = list(policy.trainable().values())
    if settings.zero_stage == 3:
        # Used outside its own module's forward, where ZeRO-3 would not gather it.
        deepspeed.zero.register_external_parameter(policy, policy.lm_head_weight)
    engine, _, _, _ = deepspeed.initialize(model=policy, model_parameters=parameters, config=config)
    return engine


def zero_optimization(settings: LearnerSettings) -> dict[str, Any]:
    """DeepSpeed's section of that name. Raises LearnerError for an offload that the stage cannot do."""
    if settings.offload != "none" and settings.zero_stage == 0:
        raise LearnerError("learner.offload needs learner.zero_stage 1, 2 or 3")
    if settings.offload == "all" and settings.zero_stage < 3:
        raise LearnerError(f"learner.offload = 'all' needs learner.zero_stage 3, not {settings.zero_stage}")
    section: dict[str, Any] = {"stage": settings.zero_stage, "overlap_comm": False}
    # Pinned memory is for copies to a GPU.
    host = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if settings.offload != "none":
        section["offload_optimizer"] = host
    if settings.offload == "all":
        section["offload_param"] = host
    return section


def reduce_sums(sums: LossSums) -> None:
    """Adds up ``sums`` over all ranks, in place."""
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, dataclasses.asdict(sums))
    total = LossSums()
    for values in gathered:
        total.add(LossSums(**values))
    for name, value in dataclasses.asdict(total).items():
        setattr(sums, name, value)


def from_rank_zero(value: Any) -> Any:
    """Rank 0's ``value``, on every rank."""
    box = [value]
    if torch.distributed.get_world_size() > 1:
        torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
