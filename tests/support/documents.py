"""Markdown documents as tests see them: fenced blocks, headings with anchors, links, sentences, table cells.

Pure: text in, values out. It knows the Markdown that these documents use, not all of CommonMark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$", re.MULTILINE)
LINK = re.compile(r"!?\[([^\]]*)\]\(([^()\s]+)\)")
CODE_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
BREAKS_PARAGRAPH = re.compile(r"^(?:[-*] |\d+\. |>|#|\||$)")
SENTENCE_END = re.compile(r"(?<=[.!?])(?:[*\"')\]]*)\s+(?=\S)")
WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, its lines, and the number of its first line in the document."""

    language: str
    text: str
    line: int


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    return [
        Block(language=match[2], text=match[3], line=document.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(document)
    ]


def anchors(document: str) -> set[str]:
    """The anchors of all headings, as GitHub makes them: a repeated one gets -1, -2 and so on."""
    found: set[str] = set()
    for match in HEADING.finditer(_without_fences(document)):
        anchor = _anchor(match[2])
        count = 0
        name = anchor
        while name in found:
            count += 1
            name = f"{anchor}-{count}"
        found.add(name)
    return found


def links(document: str) -> list[str]:
    """The targets of all links, those in code left out."""
    text = CODE_SPAN.sub("``", _without_fences(document))
    return [match[2] for match in LINK.finditer(text)]


def sentences(document: str) -> Iterator[str]:
    """The sentences of paragraphs, list items and quotes. Tables, headings and code blocks are left out."""
    for paragraph in _paragraphs(document):
        yield from SENTENCE_END.split(_plain(paragraph))


def cells(document: str) -> Iterator[str]:
    """The cells of all tables, without those of the line below a table's head."""
    for line in _without_fences(document).splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|:\- ]+", line):
            hidden = CODE_SPAN.sub(lambda match: match[0].replace("|", " "), line.replace("\\|", " "))
            yield from (_plain(cell) for cell in hidden.strip().strip("|").split("|"))


def word_count(text: str) -> int:
    """Words of a plain text; a stretch of code counts as one."""
    return sum(WORD.search(word) is not None for word in text.split())


def _anchor(heading: str) -> str:
    text = LINK.sub(r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _plain(text: str) -> str:
    return LINK.sub(r"\1", CODE_SPAN.sub("CODE", text))


def _paragraphs(document: str) -> Iterator[str]:
    lines: list[str] = []
    for line in _without_fences(document).splitlines():
        stripped = line.strip().removeprefix("> ") if line.startswith(">") else line.strip()
        if BREAKS_PARAGRAPH.match(stripped) or line.startswith("    "):
            if lines:
                yield " ".join(lines)
            lines = []
        if stripped and not stripped.startswith(("#", "|")) and stripped != ">" and not _is_code(line, lines):
            lines.append(re.sub(r"^(?:[-*] |\d+\. )", "", stripped))
    if lines:
        yield " ".join(lines)


def _is_code(line: str, paragraph: list[str]) -> bool:
    """Whether a line is part of a block that four spaces indent."""
    return line.startswith("    ") and not paragraph


def _without_fences(document: str) -> str:
    return FENCE.sub("", document)
