"""The HTTP API of the playground, on a server of its own: what it answers, rejects and leaves."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request

from pathlib import Path
from typing import Any

import httpx
import pytest

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.data.formats import read_instance
from rl4co.envs.routing.mtvrp.variants import VARIANTS
from rl4co.serve.app import create_app
from tests.unit.serve.server import MODELS, Server, descendants, is_running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

TSP = {"coordinates": [[0, 0], [3, 0], [3, 4], [0, 4]]}


# ---------------------------------------------------------------- what it answers


def test_catalogue(server: Server):
    problems = {row["name"]: row for row in server.client.get("/api/problems").json()}
    assert set(problems) == {"tsp", "cvrp", "cvrptw", "mtvrp", "op", "pdp", "jssp", "flp"}
    assert problems["mtvrp"]["options"][0]["values"] == list(VARIANTS)
    rows = {row["name"]: row for row in server.client.get("/api/models").json()}
    assert set(MODELS.values()) <= set(rows)
    assert rows[MODELS["cvrp"]]["problem"] == "cvrp"
    assert "multistart_greedy" in rows[MODELS["cvrp"]]["decodings"]
    solvers = server.client.get("/api/solvers", params={"problem": "jssp"}).json()
    assert solvers[0]["name"] == "cpsat" and solvers[0]["default"]
    assert "pyvrp" not in [row["name"] for row in solvers]


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "cvrptw", "mtvrp", "op", "pdp", "jssp", "flp"])
def test_random_instances_are_files(server: Server, tmp_path: Path, problem: str):
    """A random instance is the same after its file was read again, also by the library."""
    instance = server.random(problem, 4)
    file = {"filename": "a.json", "content": json.dumps(instance), "problem": problem}
    parsed = server.post("/instances/parse", **file).json()
    assert (parsed["problem"], parsed["instance"]) == (problem, instance)
    (tmp_path / "a.json").write_text(json.dumps(instance))
    assert read_instance(tmp_path / "a.json").problem == problem


def test_variants_have_their_features(server: Server):
    features = ("open_routes", "backhaul_demand", "max_length", "time_windows")
    plain, full = (server.random("mtvrp", 12, variant=name) for name in ("cvrp", "ovrpbltw"))
    assert not set(features) & set(plain)
    assert set(features) <= set(full)


def test_job_compares_methods(server: Server):
    """Costs are those of the solutions, gaps refer to the best one, events tell all of it."""
    instance = server.random("cvrp", 7)
    model = MODELS["cvrp"]
    job = server.solve(
        "cvrp", instance, "pyvrp", f"{model}/greedy", f"{model}/sampling", max_runtime=1, trace=True
    )
    events = list(server.events(job))
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    assert list(server.events(job, after=len(events) - 2)) == events[-2:]
    assert list(server.events(job, after=10**9)) == []
    result = server.client.get(f"/api/jobs/{job}").json()
    assert events[-1][1] == "done" and events[-1][2]["methods"][0]["cost"] is not None
    assert [method["state"] for method in result["methods"]] == ["done"] * 3
    costs = [method["cost"] for method in result["methods"]]
    for number, method in enumerate(result["methods"]):
        solution = method["solution"]
        places = instance["coordinates"]
        stops = [[0, *route, 0] for route in solution["routes"]]
        legs = [leg for route in stops for leg in itertools.pairwise(route)]
        length = sum(
            ((places[a][0] - places[b][0]) ** 2 + (places[a][1] - places[b][1]) ** 2) ** 0.5
            for a, b in legs
        )
        assert method["cost"] == pytest.approx(length) and solution["feasible"]
        assert method["gap"] == pytest.approx(method["cost"] / min(costs) - 1)
        own = [data for _, name, data in events if name == "incumbent" and data["method"] == number]
        assert own[-1]["cost"] == pytest.approx(method["cost"])
        assert [data["cost"] for data in own] == [cost for _, cost in method["incumbents"]]
        shown = [
            data["solution"]
            for _, name, data in events
            if name == "solution" and data["method"] == number
        ]
        costs_shown = [each["cost"] for each in shown]
        assert shown[-1]["actions"] == solution["actions"]
        assert costs_shown == sorted(costs_shown, reverse=True)
    decisions = [data for _, name, data in events if name == "decision" and data["method"] == 1]
    taken = [decision["action"] for decision in decisions]
    routes = result["methods"][1]["solution"]["routes"]
    assert [node for node in taken if node] == [node for route in routes for node in route]
    for decision in decisions:
        assert decision["action"] == decision["candidates"][0][0]
        assert decision["action"] in decision["mask"]
    for form, start in (("json", b"{"), ("csv", b"route,"), ("png", b"\x89PNG")):
        file = server.client.get(f"/api/jobs/{job}/result", params={"format": form, "method": 1})
        assert file.content.startswith(start)
    line = server.client.get(f"/api/jobs/{job}/result", params={"format": "coordinates"}).json()
    assert line["features"][0]["geometry"]["coordinates"][0] == instance["coordinates"][0]


def test_schedule_and_facilities(server: Server):
    jobs = {"problem": "jssp", "machines": 2, "jobs": [[[0, 3], [1, 2]], [[1, 4], [0, 1]]]}
    result = server.finish(server.solve("jssp", jobs, "cpsat", f"{MODELS['jssp']}/greedy"))
    solution = result["methods"][0]["solution"]
    # Both first operations start at once; the second ones follow on the other machine.
    assert solution["cost"] == 6 and len(solution["schedule"]) == 4
    assert {"job": 1, "operation": 0, "machine": 1, "start": 0, "end": 4} in solution["schedule"]
    places = {"facilities": 1, "coordinates": [[0, 0], [0, 3], [4, 3]]}
    result = server.finish(server.solve("flp", places, "greedy"))
    assert result["methods"][0]["solution"]["chosen"] == [1]
    assert result["methods"][0]["cost"] == 7


def test_nodes_are_numbered_as_the_client_does(server: Server):
    """Pairs in any order: the library has pickups first, the client does not notice."""
    places = [[0, 0], [1, 0], [9, 0], [2, 0], [8, 0]]
    instance = {"coordinates": places, "pairs": [[4, 2], [1, 3]]}
    job = server.solve("pdp", instance, "pyvrp", max_runtime=1)
    (method,) = server.finish(job)["methods"]
    (route,) = method["solution"]["routes"]
    assert method["cost"] == 18 and sorted(route) == [1, 2, 3, 4]
    assert route.index(4) < route.index(2) and route.index(1) < route.index(3)
    body = {"problem": "pdp", "instance": instance, "model": MODELS["pdp"]}
    what_if = server.post("/decide", **body, forced=[4], forbidden=[2]).json()
    assert what_if["decisions"][0]["action"] == 4 and what_if["decisions"][0]["forced"]
    assert sorted(what_if["decisions"][0]["mask"]) == [1, 4]
    assert 2 in what_if["decisions"][1]["mask"] and what_if["decisions"][1]["action"] != 2
    assert what_if["solution"]["routes"][0][0] == 4


def test_file_of_an_upload(server: Server):
    """Compressed files, of which the name matters for nothing but the format."""
    text = "NAME: x\nTYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
    text += "1 0 0\n2 0 3\n3 4 0\nEOF\n"
    content = base64.b64encode(gzip.compress(text.encode())).decode()
    file = {"filename": "../../x.tsp.gz", "content": content, "encoding": "base64"}
    parsed = server.post("/instances/parse", **file).json()
    assert parsed["problem"] == "tsp" and parsed["instance"]["rounding"] == "nearest"
    methods = [{"kind": "solver", "name": "ils"}]
    job = server.post("/solve", file=file, methods=methods, max_runtime=1).json()["id"]
    assert server.finish(job)["methods"][0]["cost"] == 12


# ---------------------------------------------------------------- what it rejects

ILS = [{"kind": "solver", "name": "ils"}]
FAULTS: dict[str, tuple[str, Any, int, str]] = {
    "broken": ("/solve", b"{", 422, "expected JSON"),
    "deep": ("/solve", b"[" * 100_000, 400, "parsing"),
    "endless number": ("/solve", b"9" * 10_000, 400, "parsing"),
    "nested": ("/solve", {"instance": {"coordinates": [[[[[[[[]]]]]]]]}, "methods": ILS}, 422, "6"),
    "NaN": ("/solve", {"instance": {"coordinates": [[float("nan"), 0]] * 3}, "methods": ILS}, 422,
            "finite numbers"),
    "infinite": ("/solve", b'{"instance": {"coordinates": [[1e999, 0], [1, 1]]}, "methods": '
                 b'[{"kind": "solver", "name": "ils"}]}', 422, "finite numbers"),
    "infinite value": ("/solve", b'{"instance": {"coordinates": [[0, 0]], "best_known": 1e999}, '
                       b'"methods": [{"kind": "solver", "name": "ils"}]}', 422, "best_known: exp"),
    "half a character": ("/solve", {"instance": {**TSP, "name": "\ud800"}, "methods": ILS}, 422,
                         "half of a character"),
    "huge": ("/solve", {"instance": {"coordinates": [[0, 0]] * 300}, "methods": ILS}, 413, "200"),
    "machines": ("/solve", {"instance": {"jobs": [[[500, 1]]]}, "methods": ILS}, 413, "200"),
    "large": ("/solve", b"[" + b"1," * 5_000_000 + b"1]", 413, "bytes"),
    "bomb": ("/instances/parse", {"filename": "a.gz", "encoding": "base64", "content":
             base64.b64encode(gzip.compress(b"0 " * 20_000_000)).decode()}, 413, "decompression"),
    "no base64": ("/instances/parse", {"filename": "a", "encoding": "base64", "content": "!"}, 422,
                  "base64"),
    "no file": ("/instances/parse", {"filename": "/etc/hosts", "content": "x"}, 422, "hosts: exp"),
    "model": ("/solve", {"instance": TSP, "methods": [{"kind": "model", "name": "../x"}]}, 422,
              "no pretrained model"),
    "solver": ("/solve", {"instance": TSP, "methods": [{"kind": "solver", "name": "ilz"}]}, 422,
               "did you mean 'ils'"),
    "other problem": ("/solve", {"instance": TSP, "methods": [
        {"kind": "solver", "name": "cpsat"}]}, 422, "cannot solve"),
    "decoding": ("/solve", {"instance": TSP, "methods": [
        {"kind": "model", "name": MODELS["tsp"], "decoding": "x"}]}, 422, "no evaluation method"),
    "seconds": ("/solve", {"instance": TSP, "methods": ILS, "max_runtime": 61}, 422, "60 seconds"),
    "methods": ("/solve", {"instance": TSP, "methods": ILS * 5}, 422, "4 methods"),
    "demand": ("/solve", {"instance": {**TSP, "demand": [0, 1, 9, 1], "capacity": 3},
               "methods": ILS}, 422, "instance.json: expected customers that a vehicle can serve"),
    "key": ("/solve", {"instance": {"cordinates": []}, "methods": ILS}, 422, "'coordinates'"),
    "option": ("/instances/random", {"problem": "tsp", "options": {"x": 1}}, 422, "option of tsp"),
    "size": ("/instances/random", {"problem": "tsp", "size": 2}, 422, "3 to 1000 cities"),
    "forced": ("/decide", {"problem": "tsp", "instance": TSP, "model": MODELS["tsp"],
               "forced": [1, 1]}, 422, "choose one of [0, 2, 3]"),
    "no path": ("/nothing", {}, 405, "Method Not Allowed"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_have_words(server: Server, fault: str):
    """The messages are those of the command line; nothing hangs, nothing shows a traceback."""
    path, body, status, words = FAULTS[fault]
    content = body if isinstance(body, bytes) else json.dumps(body)
    headers = {"content-type": "application/json"}
    response = server.client.post(f"/api{path}", content=content, headers=headers, timeout=60)
    message = response.json()["error"]["message"]
    assert response.status_code == status, message
    assert words in message and "Traceback" not in message and "/tmp" not in message


def test_other_sites_and_names_are_rejected(server: Server):
    get = server.client.get
    assert get("/api/problems", headers={"origin": "http://evil.example"}).status_code == 403
    assert get("/api/problems", headers={"host": "evil.example"}).status_code == 403
    allowed = get("/api/problems", headers={"origin": server.url})
    assert allowed.status_code == 200 and "access-control-allow-origin" not in allowed.headers


# ---------------------------------------------------------------- any request at all

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
NUMBERS = st.floats(-1e3, 1e3) | st.integers(0, 9) | st.sampled_from([float("nan"), 1e308, -1])
INSTANCES = st.fixed_dictionaries(
    {"coordinates": st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=6) | JSON_VALUES},
    optional={
        "demand": st.lists(NUMBERS, max_size=6),
        "capacity": NUMBERS,
        "time_windows": st.lists(st.lists(NUMBERS, max_size=3), max_size=6),
        "pairs": st.lists(st.lists(st.integers(-1, 5), max_size=3), max_size=3),
        "prizes": st.lists(NUMBERS, max_size=6),
        "max_length": NUMBERS,
        "jobs": st.lists(st.lists(st.lists(st.integers(-1, 9), max_size=3), max_size=3)),
        "facilities": st.integers(-1, 9),
        "problem": st.sampled_from(["tsp", "cvrp", "jssp", "flp", "x"]) | JSON_VALUES,
    },
)
WORDS = ("tsp", "cvrp", "pdp", "jssp", "flp", "ils", "greedy", "x", *MODELS.values())


def values_of(schema: dict[str, Any], document: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of the document describes, more or less."""
    if "$ref" in schema:
        return values_of(document["components"]["schemas"][schema["$ref"].split("/")[-1]], document)
    if "anyOf" in schema:
        return st.one_of([values_of(each, document) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        rows = {
            name: INSTANCES if name == "instance" else values_of(each, document)
            for name, each in schema["properties"].items()
        }
        return st.fixed_dictionaries(
            {name: row for name, row in rows.items() if name in required},
            optional={name: row for name, row in rows.items() if name not in required},
        )
    if kind == "array":
        return st.lists(values_of(schema["items"], document), max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "string": st.sampled_from(WORDS) | st.text(max_size=9),
        "integer": st.integers(0, 9),
        "number": st.floats(0.1, 0.5),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, JSON_VALUES)


@settings(max_examples=40)
@given(data=st.data())
def test_any_request_is_answered(server: Server, data: st.DataObject):
    """Bodies by the OpenAPI document, with parts replaced: answers are as the document says."""
    document = server.client.get("/api/openapi.json").json()
    posts = sorted(path for path, item in document["paths"].items() if "post" in item)
    path = data.draw(st.sampled_from(posts))
    operation = document["paths"][path]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    body = data.draw(values_of(schema, document))
    if body and data.draw(st.booleans()):
        body[data.draw(st.sampled_from(sorted(body)))] = data.draw(JSON_VALUES)
    content = json.dumps(body).encode("utf-8", "surrogatepass")
    headers = {"content-type": "application/json"}
    response = server.client.post(path, content=content, headers=headers)
    assert str(response.status_code) in operation["responses"], response.text
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["message"] and "Traceback" not in error["message"]
    elif response.status_code == 202:
        job = response.json()["id"]
        server.client.delete(f"/api/jobs/{job}")
        assert server.finish(job)["state"] in ("cancelled", "done", "failed")


# ---------------------------------------------------------------- processes, queue, token


def solver_processes(server: Server) -> set[int]:
    """Processes that run a solver; workers of the server itself stay."""
    running = {pid for pid in descendants(server.process.pid) if is_running(pid)}
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in running}
    return {pid for pid, command in commands.items() if b"rl4co.serve" not in command}


def test_cancelled_jobs_leave_no_process(server: Server):
    instance = server.random("cvrp", 100)
    job = server.solve("cvrp", instance, "pyvrp", "ortools", max_runtime=60)
    waiting = [server.solve("cvrp", instance, "pyvrp", max_runtime=60) for _ in range(2)]
    full = server.post("/solve", instance=TSP, methods=ILS)
    assert full.status_code == 429 and "retry-after" in full.headers
    assert wait_until(lambda: solver_processes(server), 60)
    started = time.monotonic()
    for each in (*waiting[::-1], job):  # those that wait end at once
        response = server.client.delete(f"/api/jobs/{each}")
        assert response.status_code == 200
        assert each not in waiting or response.json()["state"] == "cancelled"
    results = [server.finish(each) for each in (job, *waiting)]
    assert wait_until(lambda: not solver_processes(server), 2 - (time.monotonic() - started) + 1)
    assert {result["state"] for result in results} == {"cancelled"}
    assert results[0]["methods"][1]["state"] == "cancelled"


def test_killed_server_leaves_no_process(models: Path):
    """SIGKILL, while a solver runs in a process of a process."""
    server = Server(models)
    server.solve("cvrp", server.random("cvrp", 100), "pyvrp", max_runtime=60)
    assert wait_until(lambda: solver_processes(server), 60)
    below = descendants(server.process.pid)
    os.kill(server.process.pid, signal.SIGKILL)
    assert len(below) >= 2
    assert wait_until(lambda: not any(map(is_running, below)), 5)
    server.close()


def test_token():
    """Other addresses than this machine's own need a token, in a header or in the address."""
    token = "a token of this test"

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(create_app(token=token))
        async with httpx.AsyncClient(transport=transport, base_url="http://a.example") as client:
            page = [(await client.get(path)).status_code for path in ("/", "/api.js", "/app.js")]
            return page + [
                (await client.get("/api/problems", headers=headers, params=params)).status_code
                for headers, params in (
                    ({}, {}),
                    ({"authorization": "Bearer another"}, {}),
                    ({}, {"token": "a tok\u00e9n"}),
                    ({"authorization": f"Bearer {token}"}, {}),
                    ({}, {"token": token}),
                )
            ]

    assert asyncio.run(statuses()) == [200, 200, 200, 401, 401, 401, 200, 200]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "expected --token with --host 0.0.0.0"),
        (["--token", "short"], "at least 16 characters"),
        (["--max-nodes", "0"], "max_nodes"),
    ],
)
def test_options(options: list[str], words: str):
    result = CliRunner().invoke(app, ["serve", *options])
    assert result.exit_code == 2 and words in result.output.replace("\n", " ")


def test_a_client_that_sends_before_it_reads_gets_the_answer(server: Server):
    """A body beyond the limit is read to its end, so that the connection is not reset."""
    sent = urllib.request.Request(f"{server.url}/api/solve", data=b"x" * 20_000_000)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(sent, timeout=60)
    assert error.value.code == 413 and b"bytes" in error.value.read()
