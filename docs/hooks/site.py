"""Hook of the site: formulas without scripts, pages from other folders, and nothing from elsewhere.

- Formulas become MathML while the site is built, so that no browser loads a script for them.
- The READMEs of methods and benchmarks, the cards of models, the reproduced tables, CONTRIBUTING
  and CHANGELOG become pages; links between all pages keep working, and links to other files of the
  repository become plain text.
- Folders in the navigation (`tutorials/`) are replaced by the pages in them.
- A page that would load something from another server fails the build.
"""

from __future__ import annotations

import html
import posixpath
import re

from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
#: File of the repository → page of the site.
INCLUDED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "results.md",
    "rl4co/kernels/README.md": "kernels.md",
    **{
        path.relative_to(ROOT).as_posix(): f"methods/{path.parent.name}.md"
        for path in sorted(ROOT.glob("rl4co/models/zoo/*/README.md"))
    },
    **{
        path.relative_to(ROOT).as_posix(): f"models/{path.parent.name}.md"
        for path in sorted(ROOT.glob("rl4co/pretrained/*/CARD.md"))
    },
    **{
        path.relative_to(ROOT).as_posix(): f"paper/{path.parent.name}.md"
        for path in sorted(ROOT.glob("results/*/report.md"))
    },
}
#: The same for files in `docs`, whose places do not change.
PAGES = {
    **{
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.*")
    },
    **INCLUDED,
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")
_FENCE = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>(~?)([\w.]+)</code>")
_LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//[^"]*"'
    r'|<link[^>]*rel="(?:stylesheet|preconnect|preload)"[^>]*href="(?:https?:)?//[^"]*"'
)


def on_files(files: Files, config: Any) -> Files:
    """Adds pages from other folders, and figures that they show."""
    for source, target in INCLUDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for figure in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            path = ROOT / posixpath.dirname(source) / figure
            place = f"{posixpath.splitext(target)[0]}/{path.name}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
            PAGES[f"{posixpath.dirname(source)}/{figure}"] = place
        files.append(File.generated(config, target, content=relink(text, source, target)))
    config.nav = expanded(config.nav, files)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of pages in `docs` to files outside of it."""
    source = f"docs/{page.file.src_uri}"
    return relink(markdown, source, page.file.src_uri) if source in PAGES else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML; cross references of docstrings as links."""
    return _FORMULA.sub(_mathml, _ROLE.sub(_reference, content))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raises an error if the page loads anything from another server."""
    if match := _LOADED.search(output):
        raise PluginError(
            f"expected {page.file.src_uri} to load local files only, got {match[0]}; "
            "store the file in docs/assets"
        )
    return output


def relink(text: str, source: str, target: str) -> str:
    """The text of `source` with links that hold in the page `target`.

    Args:
        text: Markdown.
        source: Path of its file in the repository.
        target: Path of its page in the site.
    """

    def replace(match: re.Match[str]) -> str:
        mark, label, link, anchor = match[1], match[2], match[3], match[4] or ""
        if re.match(r"\w+:", link):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        place = PAGES.get(path) or PAGES.get(f"{path}/README.md")
        if place is None:
            # Not a page. What is missing stays a link, which fails the strict build.
            return label if not mark and (ROOT / path).exists() else match[0]
        new = posixpath.relpath(place, posixpath.dirname(target) or ".")
        return f"{mark}[{label}]({new}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if k % 2 else _LINK.sub(replace, part) for k, part in enumerate(parts))


def expanded(nav: Any, files: Files) -> Any:
    """The navigation with folders (`name/`) replaced by their pages; empty sections are dropped."""
    if isinstance(nav, list):
        entries = [expanded(entry, files) for entry in nav]
        flat = [
            each for entry in entries for each in (entry if isinstance(entry, list) else [entry])
        ]
        return [entry for entry in flat if entry]
    if isinstance(nav, dict):
        kept = {title: expanded(entry, files) for title, entry in nav.items()}
        return {title: entry for title, entry in kept.items() if entry}
    if not nav.endswith("/"):
        return nav
    pages = [
        file.src_uri
        for file in files.documentation_pages()
        if posixpath.dirname(file.src_uri) == nav.rstrip("/")
        and file.inclusion != InclusionLevel.EXCLUDED
    ]
    return sorted(pages, key=lambda uri: (not uri.endswith("/index.md"), uri))


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return convert(html.unescape(match[3]).strip(), display=display)


def _reference(match: re.Match[str]) -> str:
    name = match[2].rpartition(".")[2] if match[1] else match[2]
    return f'<autoref optional identifier="{match[2]}"><code>{name}</code></autoref>'
