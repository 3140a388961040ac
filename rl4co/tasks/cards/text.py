"""The text of a card, `CARD.md`, from its numbers."""

from __future__ import annotations

import json

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def card_text(card: Mapping[str, Any]) -> str:
    """A card in Markdown.

    Args:
        card: Content of `card.json`, with results or without.
    """
    parts = [
        f"# {card['name']}",
        _introduction(card),
        f"```bash\nrl4co solve FILE {_option(card)} {card['name']}\n```",
    ]
    if card.get("results"):
        parts += [_results(card), _times(card), *_files(card), _limits(card)]
    parts += [_training(card)]
    return "\n\n".join(parts) + "\n"


def _option(card: Mapping[str, Any]) -> str:
    return "--improve" if card["kind"] == "improve" else "--model"


def _introduction(card: Mapping[str, Any]) -> str:
    verb = {"improve": "improves solutions of", "ants": "guides ants on"}.get(
        card["kind"], "constructs solutions of"
    )
    trained = f", trained on instances of size {card['size']}" if card["size"] else ""
    return (
        f"`{card['policy']}`, which {verb} `{card['problem']}`{trained}. "
        f"It has {card['parameters']:,} parameters, stored as {card['precision']}"
        + (
            f", which changes the mean value by {card['precision_change']:+.3f} %."
            if "precision_change" in card
            else "."
        )
        + f" License: {card['licence']}."
    )


def _results(card: Mapping[str, Any]) -> str:
    """A line for each size and kind of instances, a column for each way to decode."""
    results = card["results"]
    ways = list(dict.fromkeys(entry["decoding"] for entry in results))
    cells = {(e["size"], e["kind"], e["decoding"]): e for e in results}
    rows = [
        (str(size), kind, *(_gap(cells[size, kind, way]) for way in ways))
        for size, kind in dict.fromkeys((e["size"], e["kind"]) for e in results)
    ]
    table = _table(("size", "instances", *ways), rows)
    return (
        f"## Gaps\n\nMean gap to {card['reference']} in percent with its 95 % interval, "
        f"{card['instances']} random instances in each line.\n\n{table}"
    )


def _times(card: Mapping[str, Any]) -> str:
    """Latency, and what the classical solver reaches in it."""
    machine, home = card["machine"], card["trained_on"]
    same = {entry["decoding"]: entry for entry in card["same_time"]}
    rows = [
        (
            entry["decoding"],
            _seconds(entry["batch_1"]),
            _seconds(entry["batch_64"]),
            _percent(same[entry["decoding"]]["model"]),
            _gap(same[entry["decoding"]]["solver"]),
            _seconds(same[entry["decoding"]]["solver"]["seconds"]),
        )
        for entry in card["latency"]
    ]
    solver = card["reference"]
    head = (
        "decoding", "one instance", "each of 64", "gap", f"gap of {solver}", f"time of {solver}",
    )  # fmt: skip
    kind = " ".join(str(part) for part in (home["size"], home["kind"]) if part)
    where = f" ({kind})" if kind else ""
    return (
        f"## Times\n\nSeconds per instance{where} on {machine['processor']}, "
        f"{machine['threads']} thread(s), and the gap that {solver} reaches if it is given the "
        f"time of one instance. Some solvers need a least time.\n\n{_table(head, rows)}"
    )


def _files(card: Mapping[str, Any]) -> list[str]:
    """Gaps on benchmark files, if any were given."""
    if not card["files"]:
        return []
    rows = [
        (
            e["files"],
            e["decoding"],
            _gap(e),
            f"{e['solved']} of {e['total']}",
            _seconds(e["seconds"]),
        )
        for e in card["files"]
    ]
    head = ("files", "decoding", "gap to best known", "solved", "seconds")
    return [f"## Benchmark files\n\n{_table(head, rows)}"]


def _limits(card: Mapping[str, Any]) -> str:
    return "## Do not use it for\n\n" + "\n".join(f"- {text}" for text in card["do_not_use_for"])


def _training(card: Mapping[str, Any]) -> str:
    facts = {**card.get("training", {}), "generator": card.get("generator", {})}
    rows = [(key, _fact(value)) for key, value in facts.items() if value is not None]
    return f"## Training\n\n{_table(('', 'value'), rows)}"


def _fact(value: Any) -> str:
    return f"`{json.dumps(value)}`" if isinstance(value, Mapping | list) else str(value)


def _gap(entry: Mapping[str, Any]) -> str:
    if entry["gap"] is None:
        return "–"
    interval = entry["interval"]
    gap = f"{entry['gap']:.2f}".replace("-0.00", "0.00")
    return gap if interval is None else f"{gap} ± {interval:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
