"""LIKE in selectors: `%` is any text, `_` any one character.

What stands between two `%` is a piece. Pieces are looked for one after the other, each as early as
it can be. The time grows with the text and not with the ways to try it: a regular expression, or a
search that tries every start anew, could be made to take for ever by whoever writes the pattern.
"""

from __future__ import annotations


class Piece:
    """Characters of which some may be any."""

    __slots__ = ("_any", "_characters", "_masks", "_text", "length")

    def __init__(self, characters: list[str | None]) -> None:
        """Takes the characters of one piece of a pattern; None stands for `_`, any one."""
        self.length = len(characters)
        self._characters = characters
        self._text = "".join(each for each in characters if each is not None)
        self._any = sum(1 << i for i, each in enumerate(characters) if each is None)
        self._masks: dict[str, int] = {}  # by character: at which places it may stand
        for i, each in enumerate(characters):
            if each is not None:
                self._masks[each] = self._masks.get(each, self._any) | 1 << i

    @property
    def has_any(self) -> bool:
        return self._any != 0

    def is_at(self, text: str, start: int) -> bool:
        if not self._any:
            return text.startswith(self._text, start)
        part = text[start : start + self.length]
        return len(part) == self.length and all(
            each is None or each == found
            for each, found in zip(self._characters, part, strict=True)
        )

    def find(self, text: str, start: int, end: int) -> int:
        """The first place of it in that part of the text; -1: there is none."""
        if not self._any:
            return text.find(self._text, start, end)
        # Bit i: the characters up to here are the first i + 1 of the piece. 64 kB and a piece of
        # 1,000 characters take 30 ms; trying every start took 16 s.
        state, whole, masks, anything = 0, 1 << (self.length - 1), self._masks, self._any
        for at in range(start, end):
            state = (state << 1 | 1) & masks.get(text[at], anything)
            if state & whole:
                return at + 1 - self.length
        return -1


class Like:
    """A pattern, ready to be asked."""

    __slots__ = ("_pieces",)

    def __init__(self, pattern: str, escape: str = "") -> None:
        """Raises ValueError."""
        pieces: list[list[str | None]] = [[]]
        characters = iter(pattern)
        for character in characters:
            if escape and character == escape:
                literal = next(characters, None)
                if literal is None:
                    raise ValueError(f"pattern '{pattern}' ends with its escape character")
                pieces[-1].append(literal)
            elif character == "%":
                if pieces[-1] or len(pieces) == 1:  # another `%` behind one says nothing new
                    pieces.append([])
            else:
                pieces[-1].append(None if character == "_" else character)
        self._pieces = [Piece(each) for each in pieces]

    @property
    def is_search(self) -> bool:
        """Whether a piece is looked for anywhere: a text that repeats itself makes that slow."""
        return len(self._pieces) > 2

    @property
    def is_costly(self) -> bool:
        """Whether a piece with `_` is looked for: that takes a step for each character."""
        return any(piece.has_any for piece in self._pieces[1:-1])

    def matches(self, text: str) -> bool:
        first, last = self._pieces[0], self._pieces[-1]
        if first is last:
            return len(text) == first.length and first.is_at(text, 0)
        at, end = first.length, len(text) - last.length
        if at > end or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        for piece in self._pieces[1:-1]:
            found = piece.find(text, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True
