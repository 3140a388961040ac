# %% [markdown]
# # Several GPUs, SLURM, precision
#
# A larger training is the same training with other settings of the trainer. Everything on this page runs on a CPU
# in a minute, so that you can try a setting before you ask a cluster for it.

# %%
import time

import matplotlib.pyplot as plt
import torch

from rl4co.envs import CVRPEnv
from rl4co.models import POMO
from rl4co.training import RL4COTrainer

env = CVRPEnv(generator_params={"num_loc": 20})
small = {"embed_dim": 64, "num_heads": 4, "num_encoder_layers": 2}
steps = 20  # quick: 1


def train(batch_size=32, **settings):
    """Trains for some steps; returns the trainer and milliseconds per instance."""
    torch.manual_seed(1234)
    count = batch_size * steps * settings.get("accumulate_grad_batches", 1)
    model = POMO(env, policy_kwargs=small, batch_size=batch_size, train_data_size=count, val_data_size=0)
    trainer = RL4COTrainer(
        **{"max_epochs": 1, "accelerator": "cpu", "devices": 1, "precision": "32-true", **settings},
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    start = time.perf_counter()
    trainer.fit(model)
    return trainer, 1000 * (time.perf_counter() - start) / count


# %% [markdown]
# ## Gradient accumulation
#
# Four batches of 8 make one step of the optimizer with the gradient of 32, in the memory of 8. It is the way to the
# batch size of a paper on a smaller GPU.

# %%
trials = {
    "batches of 32": train(32),
    "4 batches of 8, accumulated": train(8, accumulate_grad_batches=4),
    "batches of 8": train(8),
}
for name, (trainer, milliseconds) in trials.items():
    print(f"{name:<30} {trainer.global_step:3d} steps, {milliseconds:5.1f} ms per instance")

# %% [markdown]
# The trainer of Lightning counts steps of the optimizer (`trainer.global_step`). PPO and improvement methods step
# their optimizer themselves: choose `mini_batch_size` in place of accumulation.
#
# ## Precision
#
# On a GPU the default is `16-mixed`, products in half precision and weights in float32. `bf16-mixed` is safer where
# the GPU has it; on a CPU 32 bits are the default and the fastest.

# %%
precisions = ["32-true", "bf16-mixed", "64-true"]
milliseconds = [train(precision=precision)[1] for precision in precisions]
figure, ax = plt.subplots(figsize=(6, 2.6))
ax.barh(precisions, milliseconds)
ax.set(xlabel="ms per training instance on this CPU");

# %% [markdown]
# Rewards are always computed in the precision of the instances: a tour has the same length with any setting.
#
# ## Several processes
#
# With several devices each process draws its own instances, and gradients are averaged (distributed data
# parallel). `batch_size` is per process, so two devices make steps of 64 here. Two processes on a CPU:
#
# ```bash
# rl4co train experiment=quick trainer.devices=2 trainer.strategy=ddp model.train_data_size=256 trainer.max_epochs=1
# rl4co train experiment=routing/pomo trainer=ddp                        # all GPUs of this machine
# rl4co train experiment=routing/pomo trainer=ddp +trainer.num_nodes=2   # of two machines
# ```
#
# A notebook cannot start such processes, but a script can. Its training is below `if __name__ == "__main__":`,
# since every process runs the file:

# %%
import subprocess
import sys

from pathlib import Path

script = """
import sys

from rl4co.envs import CVRPEnv
from rl4co.models import POMO
from rl4co.training import RL4COTrainer

if __name__ == "__main__":
    env = CVRPEnv(generator_params={"num_loc": 10})
    small = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
    model = POMO(env, policy_kwargs=small, batch_size=8, train_data_size=64, val_data_size=16, seed=1)
    trainer = RL4COTrainer(
        max_epochs=1, accelerator="cpu", devices=int(sys.argv[1]), strategy="ddp", logger=False, precision="32-true",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model)
    if trainer.is_global_zero:
        print(trainer.world_size, "processes,", trainer.global_step, "steps of 8 instances each")
"""
program = Path("several.py")
program.write_text(script)
num_processes = 2  # quick: 1
command = [sys.executable, program.name, str(num_processes)]
outcome = subprocess.run(command, capture_output=True, text=True, check=True)
program.unlink()
print(outcome.stdout.strip().splitlines()[-1])

# %% [markdown]
# ## SLURM
#
# Lightning reads the variables of the job. Ask for one task per GPU:
#
# ```text
# #!/bin/bash
# #SBATCH --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 --time=24:00:00 --signal=TERM@90
# srun rl4co train experiment=routing/pomo trainer=ddp trainer.devices=4 +trainer.num_nodes=2 \
#     hydra.run.dir=logs/pomo
# ```
#
# `--signal` sends SIGTERM 90 seconds before the limit: the run writes `last.ckpt` and exits with 143. Submit it
# again with `ckpt_path=logs/pomo/checkpoints/last.ckpt`.
#
# ## `torch.compile`
#
# The trainer does not compile. Instances differ in size and solutions in length, so that compiled code is often
# compiled again, and on a CPU the pointer has a fused kernel. If you train on one size on a GPU, compile the
# encoder alone:

# %%
policy = POMO(env, policy_kwargs=small).policy
expected = policy(td := env.reset(batch_size=2), env, phase="test")["reward"]
backend = "eager"  # leave the argument out on a GPU: this one checks only that the code can be captured
policy.encoder = torch.compile(policy.encoder, dynamic=True, backend=backend)
print(torch.equal(policy(td, env, phase="test")["reward"], expected))

# %% [markdown]
# Save the policy before you compile it: a compiled module has other names in its state (`_orig_mod`).
#
# **Limits.** The numbers above come from a CPU. The commands for GPUs and clusters have not been tried on any.
#
# ## Where to go next
#
# - [Scaling and tracking](../scaling.md): all settings in one place.
# - [Sweeps, loggers, resuming](14_sweeps_and_logging.md): many trainings.
# - [Training](../training.md): what to change first.
