"""Hook of the site: the table and the figure of all pretrained models, from their cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from mkdocs.structure.files import File, Files

from rl4co.pretrained import pretrained_models

ROOT = Path(__file__).resolve().parents[2]
FIGURE = "models.svg"
MARK = "<!-- table of models -->"
#: Colours that are readable on light and dark pages.
COLOURS = ("#e8833a", "#4878cf", "#6aa84f", "#a64d79")


def on_files(files: Files, config: Any) -> Files:
    """Adds the figure."""
    path = ROOT / "build" / FIGURE
    path.parent.mkdir(exist_ok=True)
    draw(path)
    files.append(File.generated(config, FIGURE, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the mark by figure and table."""
    figure = f"![Mean gap of each model, by decoding]({FIGURE}){{ .solution }}"
    return markdown.replace(MARK, f"{figure}\n\n{table()}") if MARK in markdown else markdown


def cards() -> dict[str, dict[str, Any]]:
    """Cards of the models that come with the library, by name."""
    sources = pretrained_models().values()
    return {str(source): source.card() for source in sources if ROOT in source.path.parents}


def home(card: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Results on instances as in training, by decoding."""
    place = card["trained_on"]
    return {
        entry["decoding"]: entry
        for entry in card["results"]
        if (entry["size"], entry["kind"]) == (place["size"], place["kind"])
    }


def table() -> str:
    """A line for each model."""
    lines = [
        "| model | problem | size | gap to | decoding and gap | hours |",
        "|---|---|---|---|---|---|",
    ]
    for name, card in cards().items():
        gaps = ", ".join(
            f"{way} {entry['gap']:.1f} %"
            for way, entry in home(card).items()
            if entry["gap"] is not None
        )
        hours = card["training"].get("hours", "")
        lines.append(
            f"| [{name}](models/{name}.md) | [{card['problem']}](problems/{card['problem']}.md) | "
            f"{card['size'] or ''} | {card['reference']} | {gaps} | {hours} |"
        )
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Draws the gap of every model with each decoding, and its 95 % interval."""
    shown = {name: home(card) for name, card in cards().items()}
    figure = Figure(figsize=(7.5, 1.1 + 0.34 * len(shown)), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(way for entries in shown.values() for way in entries))
    for way, colour in zip(ways, COLOURS * len(ways), strict=False):
        points = [
            (entries[way]["gap"], row, entries[way]["interval"] or 0.0)
            for row, entries in enumerate(shown.values())
            if way in entries and entries[way]["gap"] is not None
        ]
        gaps, rows, intervals = zip(*points, strict=True)
        axes.errorbar(gaps, rows, xerr=intervals, fmt="o", color=colour, label=way, capsize=2)
    axes.set_yticks(range(len(shown)), list(shown))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel("mean gap to the classical solver in %")
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.grid(axis="x", color="#88888844")
    figure.legend(loc="outside upper right", ncols=4, frameon=False, labelcolor="#888888")
    axes.tick_params(colors="#888888")
    axes.xaxis.label.set_color("#888888")
    axes.spines[:].set_visible(False)
    figure.savefig(path, transparent=True)
