"""Hook of the site: writes a page for each registered problem, and the wall of all of them.

Text comes from the docstrings of environments and generators, figures from `figures.py`, which runs
in processes of its own; figures are kept in `build/gallery` until the code that draws them changes.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import subprocess
import sys

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import figures  # noqa: E402

from rl4co.core.registry import ENVS, FORMULATIONS, LAYOUTS, MODELS  # noqa: E402
from rl4co.tasks.catalogue import CATALOGUE  # noqa: E402

AREAS = {
    "routing": "Routing",
    "scheduling": "Scheduling",
    "eda": "Electronic design",
    "graph": "Graphs",
}
NUM_PROCESSES = 2
GUIDES = {"problems": "problems/index.md", "methods": "methods.md"}
_SECTION = re.compile(r"^(State|Constraints|Finish condition|Reward|Args|Returns):[ ]*$", re.M)
_ROW = re.compile(r"^ *\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.M)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def on_files(files: Files, config: Any) -> Files:
    """Adds pages and figures to the files of the site."""
    folder = figures_folder()
    draw_missing([name for name in ENVS if not (folder / f"{name}.webp").is_file()], folder)
    pages = {"index": wall(), **{name: page(name) for name in ENVS}}
    for name, text in pages.items():
        files.append(File.generated(config, f"problems/{name}.md", content=text))
    for figure in sorted(folder.iterdir()):
        files.append(File.generated(config, f"problems/{figure.name}", abs_src_path=str(figure)))
    for uri, registry in {"problems": ENVS, "methods": MODELS}.items():
        file = File.generated(config, f"reference/{uri}.md", content=classes(uri, registry))
        files.append(file)
    return files


def figures_folder() -> Path:
    """Where figures are kept, by a digest of the code that they depend on."""
    sources = [
        Path(figures.__file__),
        *(ROOT / "rl4co" / "envs").rglob("*.py"),
        *(ROOT / "rl4co" / "solvers").rglob("*.py"),
    ]
    texts = b"".join(path.read_bytes() for path in sorted(sources))
    folder = ROOT / "build" / "gallery" / hashlib.sha256(texts).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def draw_missing(names: list[str], folder: Path) -> None:
    """Draws the figures of the problems, some in each process."""
    script = [sys.executable, figures.__file__, str(folder)]
    shares = [share for k in range(NUM_PROCESSES) if (share := names[k::NUM_PROCESSES])]
    running = [subprocess.Popen([*script, *share], cwd=ROOT) for share in shares]
    if sum(process.wait() for process in running):
        raise RuntimeError(f"expected figures of {', '.join(names)}, got an error; see above")


# ---------------------------------------------------------------- pages


def wall() -> str:
    """The start page of the gallery: all problems by area."""
    parts = [
        "# Problems\n\nEvery environment of the library with one of its solutions. A page shows "
        "how the solution is built, lists the keys of instances and states, constraints, reward, "
        "generator, files, solvers and methods, and has an example that runs. Environments in "
        "general: [Environments](../environments.md).\n"
    ]
    for area in sorted({area_of(name) for name in ENVS}, key=[*AREAS, ""].index):
        parts.append(f'\n## {AREAS.get(area, "Plug-ins")}\n\n<div class="wall" markdown>\n')
        for name in (name for name in ENVS if area_of(name) == area):
            title = title_of(name)
            parts.append(
                f"[![A solution of {name}]({name}-small.png){{ loading=lazy }} **{name}** "
                f"{title}]({name}.md)\n"
            )
        parts.append("</div>\n")
    return "\n".join(parts)


def classes(uri: str, registry: Mapping[str, Any]) -> str:
    """The page of the reference that has one class for each name of a registry."""
    parts = [
        f"# {uri.capitalize()}\n\nOne class for each of the [{uri}](../{GUIDES[uri]}); the "
        "headings are their registered names.\n"
    ]
    parts += [f"## {name}\n\n::: {path_of(entry)}\n" for name, entry in registry.items()]
    return "\n".join(parts)


def page(name: str) -> str:
    """The page of one problem."""
    env = ENVS[name]
    texts = sections(env)
    blocks = {
        "": f"---\ntitle: {name}\n---\n\n# {title_of(name)}\n\n"
        f"`{name}` · [`{env.__name__}`][{path_of(env)}]\n\n"
        f"{texts[''].partition(chr(10) * 2)[2]}\n\n"
        f"![A solution of {name}]({name}.png){{ .solution }}",
        "Step by step": f"![Construction of a solution]({name}.webp){{ .solution loading=lazy }}",
        "Example": f"```python\n{figures.example(name)}```",
        "Keys of an instance": instance_keys(env, texts["State"]),
        "Keys of a state": texts["State"],
        "Constraints": texts["Constraints"],
        "Finish condition": texts["Finish condition"],
        "Reward": texts["Reward"],
        "Arguments of the environment": arguments(texts.get("Args", "")),
        "Generator": generator(env.generator_cls),
        "Files": files_read(name),
        "Classical solvers": solvers(name),
        "Methods": methods(name),
    }
    return "\n\n".join(
        (f"## {heading}\n\n" if heading else "") + text for heading, text in blocks.items() if text
    )


def sections(cls: type) -> dict[str, str]:
    """Parts of a docstring by heading, what is missing from base classes; "": the description.

    The table of the state has the rows of all classes up to the first that repeats no other.
    """
    found: dict[str, str] = {}
    tables: list[str] = []
    for each in cls.__mro__:
        text = inspect.cleandoc(each.__doc__ or "")
        first, *rest = _SECTION.split(text)
        parts = {"": first, **dict(zip(rest[::2], map(inspect.cleandoc, rest[1::2]), strict=True))}
        if "State" in parts and (not tables or tables[-1].startswith("That of")):
            tables.append(re.sub(r"^ +(?=\|)", "", parts.pop("State").strip(), flags=re.M))
        for heading, part in parts.items():
            # Tables end at the next paragraph that is not indented, e.g. remarks on the keys.
            found.setdefault(heading, _ROLE.sub(r"`\1`", part.strip()))
    if tables:
        found["State"] = _ROLE.sub(r"`\1`", _join(tables))
    return found


def _join(tables: list[str]) -> str:
    """Tables of a class and its bases as one, which a row of a derived class overrides."""
    if len(tables) == 1:
        return tables[0]
    rows = {match[1]: match[0].strip() for text in tables[::-1] for match in _ROW.finditer(text)}
    return "\n".join(["| key | dtype | shape | meaning |", "|---|---|---|---|", *rows.values()])


def instance_keys(env: Any, state: str) -> str:
    """A table of the keys that an instance has or may have."""
    meanings = {key: meaning for key, _, _, meaning in _ROW.findall(state)}
    rows = ["| key | shape | meaning |", "|---|---|---|"]
    for key, shape in {**env.instance_shapes, **env.optional_shapes}.items():
        shown = ", ".join(shape.split())
        remarks = [] if key in env.instance_shapes else ["optional"]
        remarks += [meanings[key]] if key in meanings else []
        rows.append(f"| `{key}` | `[*B{', ' if shown else ''}{shown}]` | {'; '.join(remarks)} |")
    return "\n".join(rows)


def arguments(text: str) -> str:
    """An `Args:` section as a list."""
    entries = re.split(r"^(\w+): ", text, flags=re.M)[1:]
    pairs = zip(entries[::2], entries[1::2], strict=True)
    return "\n".join(
        f"- `{key}`: {' '.join(value.split())}" for key, value in pairs if key != "kwargs"
    )


def generator(cls: type) -> str:
    """Class and arguments of the generator, with their defaults."""
    texts = sections(cls)
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    listed = arguments(texts.get("Args", ""))
    for key, value in defaults.items():
        listed = listed.replace(f"- `{key}`:", f"- `{key}={value!r}`:", 1)
    summary = texts[""].partition("\n\n")[0]
    returns = f"\n\nReturns {texts['Returns']}" if "Returns" in texts else ""
    return f"`{cls.__name__}`: {summary}\n\n{listed}{returns}"


def files_read(name: str) -> str:
    """Formats of `docs/files.md` that mention the problem."""
    table = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    formats = [
        row[1].strip()
        for line in table.splitlines()
        if len(row := line.split("|")) == 5 and re.search(rf"\b{name}\b", row[2])
    ]
    own = ["JSON and CSV"] if name in LAYOUTS else []
    listed = ", ".join([*formats, *own, "`.npz` data sets"])
    return f"{listed}. See [Instances from files](../files.md)."


def solvers(name: str) -> str:
    """The solvers that the formulation prefers; the first is the default."""
    known = CATALOGUE["solvers"]()
    preferred = getattr(FORMULATIONS.get(name), "solvers", ())
    rows = bullets({solver: known[solver] for solver in preferred})
    more = '`solver="random"` works for every problem; `rl4co list solvers` lists all solvers.'
    return f"{rows}\n\n{more}" if rows else more


def methods(name: str) -> str:
    """Methods that support the problem, and experiments that train on it."""
    known = CATALOGUE["models"]()
    supporting = [model for model in MODELS if MODELS[model].supports(name)]
    rows = bullets({f"[{model}](../methods/{model}.md)": known[model] for model in supporting}, "")
    folder = ROOT / "rl4co" / "configs" / "experiment"
    pattern = re.compile(rf"override /env: {name}(\.yaml)?\s*$", re.M)
    experiments = [
        path.relative_to(folder).with_suffix("").as_posix()
        for path in sorted(folder.rglob("*.yaml"))
        if pattern.search(path.read_text(encoding="utf-8"))
    ]
    commands = "".join(f"rl4co train experiment={each}\n" for each in experiments)
    return f"{rows}\n\n```bash\n{commands}```" if commands else rows


def bullets(entries: Mapping[str, str], mark: str = "`") -> str:
    """A list of names with their descriptions."""
    return "\n".join(f"- {mark}{key}{mark}: {text}" for key, text in entries.items())


# ---------------------------------------------------------------- names


def title_of(name: str) -> str:
    """First sentence of the class, up to its colon."""
    first = (inspect.getdoc(ENVS[name]) or name).partition("\n")[0]
    return first.partition(":")[0].strip().rstrip(".")


def path_of(cls: type) -> str:
    """Dotted name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def area_of(name: str) -> str:
    """Folder of the problem's area; "" for plug-ins."""
    place: Iterable[str] = ENVS[name].__module__.split(".")
    return next((part for part in place if part in AREAS), "")
