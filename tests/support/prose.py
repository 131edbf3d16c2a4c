"""How hard prose is to read: its sentences, and its grade by Flesch and Kincaid (1975).

By hand, because textstat fetches a dictionary from the network. Syllables are counted by rules: over all the
words of docs/ there are within one per cent as many as by the CMU dictionary.
"""

from __future__ import annotations

import re

BLOCKS = re.compile(r"<!--.*?-->|^(`{3,}|:{3,}).*?^\1\s*$|^\$\$.*?^\$\$$", flags=re.MULTILINE | re.DOTALL)
NOT_PROSE = re.compile(r"^\s*\|.*$|^#+ .*$|!\[[^\]]*\]\([^)]*\)|<[^>\n]+>|^\[[^\]]+\]: .*$", flags=re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|\$[^$\n]+\$", flags=re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?=(?:[-*]|\d+\.) )")
END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9]|[\"'(*_]*code)")
ABBREVIATED = re.compile(r"\b(e\.g|i\.e|et al|vs|Fig|cf)\.")


def sentences(markdown: str) -> list[str]:
    """The sentences of a page: without code, tables, headings and pictures; an item of a list ends one.

    Args:
        markdown: The page.

    Returns:
        Its sentences, links as their words, code within a line as one short word.
    """
    text = NOT_PROSE.sub("", BLOCKS.sub("", markdown))
    text = ABBREVIATED.sub(r"\1", LINK.sub(r"\1", CODE.sub("code", text)))
    found = [" ".join(one.split()) for part in PARAGRAPH.split(text) for one in END.split(part)]
    return [one for one in found if len(words(one)) > 1]


def words(sentence: str) -> list[str]:
    """The words of a sentence; numbers are none."""
    return re.findall(r"[A-Za-z][A-Za-z']*", sentence)


def syllables(word: str) -> int:
    """By groups of vowels, without a silent e."""
    word = re.sub(r"'s?$|[^a-z]", "", word.lower())
    spoken = re.sub(r"(?:(?<![cgsxzh])es|(?<![td])ed|(?<!l)e)$", "", word)
    count = len(re.findall(r"[aeiouy]+", spoken))
    count += len(re.findall(r"[^tcs]i[ao]|ie(?=nt)|ua(?=t)|[aeiou](?=ing$)|ism$", word)) - len(
        re.findall(r"every|several", word)
    )
    return max(1, count)


def grade(markdown: str) -> float:
    """The Flesch-Kincaid grade of a page: years at school that a reader needs."""
    found = sentences(markdown)
    every = [word for sentence in found for word in words(sentence)]
    return 0.39 * len(every) / len(found) + 11.8 * sum(map(syllables, every)) / len(every) - 15.59
