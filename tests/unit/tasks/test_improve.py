"""`improve`: limits, copies, restarts, interruptions; first solutions of policies; files."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import time

import pytest
import torch

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    InvalidSolutionError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.envs import PDPRuinRepairEnv, TSPEnv, TSPkoptEnv
from rl4co.models import (
    DACT,
    AttentionModelPolicy,
    DACTPolicy,
    HeterogeneousAttentionModelPolicy,
    N2SPolicy,
    NeuOptPolicy,
)
from rl4co.models.zoo.dact.policy import DACTDecoder
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.improve import improve

TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
BATCH = 3
SQUARE_FILE = """NAME: square
TYPE: TSP
DIMENSION: 8
EDGE_WEIGHT_TYPE: EUC_2D
NODE_COORD_SECTION
1 0 0
2 100 0
3 200 0
4 200 100
5 200 200
6 100 200
7 0 200
8 0 100
EOF
"""

MATRIX_FILE = """NAME: matrix
TYPE: TSP
DIMENSION: 4
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: FULL_MATRIX
EDGE_WEIGHT_SECTION
0 1 2 3
1 0 4 5
2 4 0 6
3 5 6 0
EOF
"""


@functools.cache
def make(name: str):
    """A policy, its environment, and instances."""
    torch.manual_seed(0)
    sizes = {"generator_params": {"num_loc": 8}}
    policy, env = {
        "dact": lambda: (DACTPolicy(**TINY), TSPkoptEnv(**sizes)),
        "neuopt": lambda: (NeuOptPolicy(**TINY), TSPkoptEnv(k_max=4, **sizes)),
        "n2s": lambda: (N2SPolicy(**TINY), PDPRuinRepairEnv(**sizes)),
    }[name]()
    return policy.eval(), env, env.generator(BATCH, rng=derive_generator(1))


METHODS = ("dact", "neuopt", "n2s")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("copies", [1, 3])
def test_result(name: str, copies: int):
    """Valid solutions with their costs; incumbents never get worse; the mode is left alone."""
    policy, env, instances = make(name)
    policy.train()
    result = improve(policy, env, instances, steps=6, num_augment=copies)
    assert policy.training
    policy.eval()
    assert result.steps == 6
    assert result.stopped == "steps"
    assert result.incumbents.shape == (7, BATCH)
    assert bool((result.incumbents.diff(dim=0) <= 0).all())
    assert bool((result.times.diff() >= 0).all())
    assert torch.equal(result.incumbents[-1], result.costs)
    td = env.reset(instances, initial=result.solutions)
    torch.testing.assert_close(td["cost_current"], result.costs)
    constructive = env.constructive_env
    reward = constructive.get_reward(constructive.reset(instances), result.actions)
    torch.testing.assert_close(-reward, result.costs)


@pytest.mark.parametrize("name", METHODS)
def test_the_seed_decides(name: str):
    policy, env, instances = make(name)
    state = torch.get_rng_state()
    results = [improve(policy, env, instances, steps=8, seed=s) for s in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0].incumbents, results[1].incumbents)
    assert not torch.equal(results[0].incumbents, results[2].incumbents)


def test_copies_begin_alike_only_if_told_so():
    """The first incumbent is the best of the copies' own random solutions."""
    policy, env, instances = make("dact")
    one = improve(policy, env, instances, steps=1, num_augment=1)
    many = improve(policy, env, instances, steps=1, num_augment=40)
    assert float(many.incumbents[0].sum()) < float(one.incumbents[0].sum())
    greedy = improve(policy, env, instances, steps=1, num_augment=4, initial="greedy")
    expected = env.reset(instances, initial="greedy")["cost_current"]
    assert torch.equal(greedy.incumbents[0], expected)
    given = env.reset(instances, initial="greedy")["rec_current"]
    same = improve(policy, env, instances, steps=1, num_augment=4, initial=given)
    assert torch.equal(same.incumbents[0], expected)


def test_seconds_are_kept():
    policy, env, instances = make("dact")
    started = time.perf_counter()
    result = improve(policy, env, instances, seconds=0.5)
    assert time.perf_counter() - started < 20.0
    assert result.stopped == "seconds"
    assert result.steps > 0

    def slow(td, env, phase):
        time.sleep(0.1)
        return {"actions": torch.arange(8).expand(BATCH, -1)}

    late = improve(policy, env, instances, seconds=0.05, initial=slow)
    assert late.steps == 0  # first solutions count
    assert float(late.times[0]) >= 0.1


@pytest.mark.parametrize("name", METHODS)
def test_states_go_on_from_their_best(name: str):
    policy, env, instances = make(name)
    td = env.reset(instances, initial="greedy")
    for copies in (1, 2):
        result = improve(policy, env, td, steps=2, num_augment=copies)
        torch.testing.assert_close(result.incumbents[0], td["cost_bsf"])


def test_forbidden_moves_of_a_decoder_are_noticed():
    class Stubborn(DACTDecoder):
        def forward(self, embeddings, *others):
            super().forward(embeddings, *others)
            return torch.tensor([[1, 1]]).expand(len(embeddings), -1)

    sizes = {"embed_dim": TINY["embed_dim"], "num_heads": TINY["num_heads"]}
    policy = DACTPolicy(decoder=Stubborn(**sizes), **TINY).eval()
    with pytest.raises(InvalidActionError, match="forbidden ones"):
        improve(policy, *make("dact")[1:], steps=1)


def test_an_interrupt_gives_what_there_is(monkeypatch):
    policy, env, instances = make("dact")
    calls = itertools.count()
    advance = type(env).advance

    def interrupted(self, state, action):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return advance(self, state, action)

    monkeypatch.setattr(type(env), "advance", interrupted)
    result = improve(policy, env, instances, steps=100)
    assert result.stopped == "interrupted"
    assert result.steps == 3
    assert torch.equal(result.incumbents[-1], result.costs)
    asked = itertools.count()
    result = improve(policy, env, instances, steps=100, stop=lambda: next(asked) == 2)
    assert (result.stopped, result.steps) == ("interrupted", 2)


def test_restart_from_the_best():
    """After each step without gain, the next one begins with the best solution."""
    policy, env, instances = make("dact")
    seen = []

    class Watched(type(policy)):
        def forward(self, td, *args, **kwargs):
            seen.append((td["cost_current"].clone(), td["cost_bsf"].clone()))
            return super().forward(td, *args, **kwargs)

    watched = Watched(**TINY).eval()
    improve(watched, env, instances, steps=8, restart_after=1)
    assert all(torch.equal(current, best) for current, best in seen)
    seen.clear()
    improve(watched, env, instances, steps=8, restart_after=0)
    assert not all(torch.equal(current, best) for current, best in seen)


@pytest.mark.parametrize("augment", ["dihedral8", "random", "dynamic"])
def test_views_keep_costs(augment: str):
    """The policy sees turned instances; distances are the same, and costs are the true ones."""
    policy, env, instances = make("neuopt")
    views = []

    class Watched(type(policy)):
        def forward(self, td, *args, **kwargs):
            views.append(td["locs"].clone())
            return super().forward(td, *args, **kwargs)

    watched = Watched(**TINY).eval()
    result = improve(watched, env, instances, steps=35, num_augment=8, augment=augment,
                     initial="greedy", decode_type="greedy")  # fmt: skip
    locs = instances["locs"]
    for view in views:
        rows = view.unflatten(0, (8, BATCH))
        expected = torch.cdist(locs, locs).expand(8, -1, -1, -1)
        torch.testing.assert_close(torch.cdist(rows, rows), expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(views[0][:BATCH], locs)
    if augment == "dihedral8":
        assert len({tuple(view.flatten().tolist()) for view in views[0].split(BATCH)}) == 8
    # A greedy policy soon gains nothing, so that dynamic views change.
    assert torch.equal(views[0], views[-1]) is (augment != "dynamic")
    td = env.reset(instances, initial=result.solutions)
    torch.testing.assert_close(td["cost_current"], result.costs)


@pytest.mark.parametrize(
    ("name", "constructor"),
    [("neuopt", AttentionModelPolicy), ("n2s", HeterogeneousAttentionModelPolicy)],
)
def test_construction_starts_improvement(name: str, constructor):
    """First solutions are those of the policy: greedy, or the best of many."""
    policy, env, instances = make(name)
    problem = env.constructive_env.name
    first = constructor(env_name=problem, **{**TINY, "feedforward_hidden": 16}).eval()
    state = env.constructive_env.reset(instances)
    for options in (
        {"decode_type": "greedy"},
        {"decode_type": "multistart_greedy", "select_best": True},
    ):
        decode = functools.partial(first, **options)
        result = improve(policy, env, instances, steps=2, initial=decode)
        expected = -first(state, env.constructive_env, phase="test", **options)["reward"]
        torch.testing.assert_close(result.incumbents[0], expected.detach())


def test_bad_input():
    policy, env, instances = make("dact")
    with pytest.raises(ConfigError, match="neither steps nor seconds"):
        improve(policy, env, instances)
    for steps in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="steps to be an integer of at least 1"):
            improve(policy, env, instances, steps=steps)
    for seconds in (0, "3", True):
        with pytest.raises(ConfigError, match="positive number of seconds"):
            improve(policy, env, instances, seconds=seconds)
    with pytest.raises(ConfigError, match=r"got DACT; pass its \.policy"):
        improve(DACT(env, policy), env, instances, steps=1)
    constructor = AttentionModelPolicy(env_name="pdp", **TINY)
    with pytest.raises(ConfigError, match="expected an improvement policy, got Att"):
        improve(constructor, env, instances, steps=1)
    with pytest.raises(UnsupportedError, match="got one for pdp"):
        improve(policy, env, instances, steps=1, initial=constructor)
    for count in (0, 1.5):
        with pytest.raises(ConfigError, match="num_augment"):
            improve(policy, env, instances, steps=1, num_augment=count)
    with pytest.raises(ConfigError, match="restart_after"):
        improve(policy, env, instances, steps=1, restart_after=-1)
    orders = make("n2s")[1].reset(make("n2s")[2])
    with pytest.raises(ConfigError, match=r"tsp_kopt.*action_record"):
        make("neuopt")[0](orders, TSPkoptEnv(k_max=3))
    with pytest.raises(ConfigError, match="got one without 'action_record'"):
        make("n2s")[0](env.reset(instances), make("n2s")[1])
    for name, value in (("temperatur", 2.0), ("phase", "train"), ("actions", None)):
        with pytest.raises(UnknownNameError, match="temperature"):
            improve(policy, env, instances, steps=1, **{name: value})
    with pytest.raises(UnknownNameError, match="no augmentation 'dihedral'"):
        improve(policy, env, instances, steps=1, augment="dihedral")
    with pytest.raises(InvalidSolutionError, match="closed tour"):
        improve(policy, env, instances, steps=1, initial=torch.zeros(BATCH, 8, dtype=torch.int64))
    with pytest.raises(UnsupportedError, match="'ruin_repair'"):
        improve(policy, make("n2s")[1], make("n2s")[2], steps=1)
    with pytest.raises(UnsupportedError, match="whole solutions"):
        improve(policy, TSPEnv(), instances, steps=1)
    with pytest.raises(UnsupportedError, match="improve"):
        evaluate_policy(env, policy, instances)


# ---------------------------------------------------------------- files


@pytest.fixture
def files(tmp_path):
    """A TSPLIB file, and the folder of a policy."""
    instance = tmp_path / "square.tsp"
    instance.write_text(SQUARE_FILE)
    return instance, make("dact")[0].save_pretrained(tmp_path / "dact")


def run(*arguments: object):
    return CliRunner().invoke(app, ["solve", *map(str, arguments), "--device", "cpu"])


def test_solve_improves_a_file(files):
    """From random solutions, and from those of a solver: never worse than these."""
    instance, model = files
    out = run(instance, "--improve", model, "--improve-steps", 150, "--json")
    assert out.exit_code == 0, out.output
    assert '"solver": "DACT"' in out.output
    better = run(instance, "--improve", model, "--improve-steps", 3, "--solver", "nearest_neighbor")
    assert better.exit_code == 0, better.output
    assert "800" in better.output
    assert "nearest_neighbor + DACT" in better.output


def test_options_that_make_no_sense_are_rejected(files, tmp_path):
    instance, model = files
    out = run(instance, "--improve-steps", 3)
    assert out.exit_code != 0
    assert "--improve MODEL with --improve-steps" in out.output
    out = run(instance, "--model", model)
    assert "use --improve for it" in out.output.replace("\n", " ")
    am = AttentionModelPolicy(env_name="tsp", **TINY, feedforward_hidden=16)
    out = run(instance, "--improve", am.save_pretrained(tmp_path / "am"))
    assert "use --model for it" in out.output.replace("\n", " ")
    out = run(instance, "--improve", model, "--max-runtime", 1)
    assert "--improve-seconds" in out.output
    out = run(instance, "--improve", model, "--improve-steps", 0)
    assert "at least 1" in out.output
    matrix = tmp_path / "matrix.tsp"
    matrix.write_text(MATRIX_FILE)
    out = run(matrix, "--improve", model)
    assert "expected coordinates for DACT" in out.output.replace("\n", " ")
    out = CliRunner().invoke(
        app, ["benchmark", str(instance), "-m", str(model), "-o", str(tmp_path / "out")]
    )
    assert out.exit_code == 1
    assert ":improve:steps=" in out.output.replace("\n", " ")


def test_ctrl_c_ends_with_an_answer(files, monkeypatch):
    """The signal comes while the file is being improved."""
    instance, model = files
    calls, advance = itertools.count(), TSPkoptEnv.advance

    def signalled(self, state, action):
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self, state, action)

    monkeypatch.setattr(TSPkoptEnv, "advance", signalled)
    started = time.perf_counter()
    out = run(instance, "--improve", model, "--improve-seconds", 60)
    assert time.perf_counter() - started < 40
    assert out.exit_code == 130, out.output
    assert "DACT" in out.output and "interrupted" in out.output
