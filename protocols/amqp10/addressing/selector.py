"""JMS selectors: a parser and an evaluator for SQL-92's conditional expressions, as JMS has them.

An expression becomes a tree of closures, made once for a link. Values are three-valued: a property
that is not there is unknown (None), and only what is true matches. Text of any kind compiles or
raises `SelectorError`; evaluation never fails.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from protocols.amqp10.addressing.selector_like import Like
from queue_core.message.message import Message, Value

MAX_SELECTOR_CHARACTERS: Final = 16_384
MAX_DEPTH: Final = 64
MAX_NODES: Final = 4096
MAX_SEARCHES: Final = 32  # LIKEs that look for something anywhere: up to 1 ms each
MAX_COSTLY: Final = 16  # LIKEs that look at each character of a text
LONGEST_SEARCHED: Final = 16_384  # characters of a text that such a LIKE looks at
LONGEST_TEXT: Final = 65_536  # and any other; a longer text is unknown to it

Lookup = Callable[[str], object]
Evaluate = Callable[[Lookup], object]


class SelectorError(ValueError):
    """The text is no selector; the message says where and why."""


# --- words


class Token(NamedTuple):
    kind: str  # name, string, number, operator, end
    text: str
    place: int


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>0[xX][0-9a-fA-F]+[lL]? | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?
        | \d+[eE][+-]?\d+[fFdD]? | \d+[lLfFdD]?)
    | (?P<string>'(?:[^']|'')*')
    | "(?P<quoted>[^"]+)"
    | (?P<name>[^\W\d][\w$.]*|\$[\w$.]*)
    | (?P<operator><>|<=|>=|!=|[=<>+\-*/(),])
    )""",
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"\s*")
KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")
)


def tokens_of(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while True:
        space = _SPACE.match(text, position)
        position = space.end() if space else position
        if position >= len(text):
            found.append(Token("end", "", position))
            return found
        match = _TOKEN.match(text, position)
        if match is None:
            raise SelectorError(
                f"'{text[position : position + 10]}' at {position} is no word of it"
            )
        kind, word = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "name" and word.upper() in KEYWORDS:
            kind, word = "keyword", word.upper()
        elif kind == "quoted":
            kind = "name"
        found.append(Token(kind, word, position))
        position = match.end()


# --- what operators mean


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alike(left: object, right: object) -> bool:
    if _is_number(left) and _is_number(right):
        return True
    return any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, bool, bytes))


def _compared(name: str, a: object, b: object) -> bool | None:
    if a is None or b is None:
        return None
    if not _alike(a, b) or (name not in EQUALITIES and not _is_number(a)):
        return False  # JMS 3.8.1.1: values of other kinds never compare
    return COMPARISONS[name](a, b)


def _compare(name: str, left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda lookup: _compared(name, left(lookup), right(lookup))


EQUALITIES: Final = frozenset(("=", "<>", "!="))
COMPARISONS: Final[dict[str, Callable[[object, object], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def _arithmetic(first: Evaluate, others: Sequence[tuple[str, Evaluate]]) -> Evaluate:
    """Computes a chain of sums or products, from left to right."""

    def evaluate(lookup: Lookup) -> object:
        found = first(lookup)
        for name, other in others:
            found = _calculated(name, found, other(lookup))
            if found is None:
                return None
        return found

    return evaluate


def _calculated(name: str, a: object, b: object) -> object:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    if isinstance(a, bool) or isinstance(b, bool):
        return None
    try:
        return _calculate(name, a, b)
    except (ZeroDivisionError, OverflowError):
        return None


def _calculate(name: str, a: float, b: float) -> object:
    match name:
        case "+":
            return _bounded(a + b)
        case "-":
            return _bounded(a - b)
        case "*":
            return _bounded(a * b)
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)  # Java's: towards zero
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def _bounded(value: float) -> object:
    return value if abs(value) < 1 << 1024 else None


def _and(terms: Sequence[Evaluate]) -> Evaluate:
    """Computes AND: true if all operands are, false if one is. A loop, because a tree as deep as
    there are words would be deeper than Python goes."""

    def evaluate(lookup: Lookup) -> object:
        found: bool | None = True
        for term in terms:
            value = _truth(term(lookup))
            if value is False:
                return False
            if value is None:
                found = None
        return found

    return evaluate


def _or(terms: Sequence[Evaluate]) -> Evaluate:
    def evaluate(lookup: Lookup) -> object:
        found: bool | None = False
        for term in terms:
            value = _truth(term(lookup))
            if value is True:
                return True
            if value is None:
                found = None
        return found

    return evaluate


def _not(inner: Evaluate) -> Evaluate:
    def evaluate(lookup: Lookup) -> object:
        value = _truth(inner(lookup))
        return None if value is None else not value

    return evaluate


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _negative(inner: Evaluate) -> Evaluate:
    def evaluate(lookup: Lookup) -> object:
        value = inner(lookup)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return evaluate


def _between(inner: Evaluate, low: Evaluate, high: Evaluate) -> Evaluate:
    """Evaluates `inner` once: twice would be twice as often at each level of a nest of them."""

    def evaluate(lookup: Lookup) -> object:
        value = inner(lookup)
        is_above = _compared(">=", value, low(lookup))
        is_below = _compared("<=", value, high(lookup))
        if is_above is False or is_below is False:
            return False
        return None if is_above is None or is_below is None else True

    return evaluate


def _in(inner: Evaluate, values: frozenset[str]) -> Evaluate:
    def evaluate(lookup: Lookup) -> object:
        value = inner(lookup)
        return None if value is None else isinstance(value, str) and value in values

    return evaluate


def _like(inner: Evaluate, like: Like) -> Evaluate:
    longest = LONGEST_SEARCHED if like.is_costly else LONGEST_TEXT

    def evaluate(lookup: Lookup) -> object:
        value = inner(lookup)
        if value is None or (isinstance(value, str) and len(value) > longest):
            return None
        return isinstance(value, str) and like.matches(value)

    return evaluate


# --- grammar


class Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._position = 0
        self._depth = 0
        self._nodes = 0
        self._searches = 0  # LIKEs that look for something anywhere in a text
        self._costly = 0  # LIKEs that look at each character of a text

    def parse(self) -> Evaluate:
        tree = self._or()
        if self._peek().kind != "end":
            raise self._unexpected("the end")
        return tree

    def _peek(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _take(self, kind: str, *words: str) -> str | None:
        token = self._peek()
        if token.kind == kind and (not words or token.text in words):
            self._position += 1
            self._nodes += 1
            if self._nodes > MAX_NODES:
                raise SelectorError(f"more than {MAX_NODES} parts; make it simpler")
            return token.text
        return None

    def _need(self, kind: str, *words: str) -> str:
        found = self._take(kind, *words)
        if found is None:
            raise self._unexpected(" or ".join(words) or f"a {kind}")
        return found

    def _unexpected(self, wanted: str) -> SelectorError:
        token = self._peek()
        return SelectorError(
            f"'{token.text or 'the end'}' at {token.place}, where {wanted} belongs"
        )

    def _or(self) -> Evaluate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SelectorError(f"nested deeper than {MAX_DEPTH}; make it simpler")
        terms = [self._and()]
        while self._take("keyword", "OR"):
            terms.append(self._and())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else _or(terms)

    def _and(self) -> Evaluate:
        terms = [self._not()]
        while self._take("keyword", "AND"):
            terms.append(self._not())
        return terms[0] if len(terms) == 1 else _and(terms)

    def _not(self) -> Evaluate:
        count = 0
        while self._take("keyword", "NOT"):
            count += 1
        tree = self._predicate()
        return _not(tree) if count % 2 else _not(_not(tree)) if count else tree

    def _predicate(self) -> Evaluate:
        left = self._sum()
        name = self._take("operator", *COMPARISONS)
        if name is not None:
            return _compare(name, left, self._sum())
        if self._take("keyword", "IS"):
            is_negated = self._take("keyword", "NOT") is not None
            self._need("keyword", "NULL")
            return lambda lookup: (left(lookup) is None) is not is_negated
        is_negated = self._take("keyword", "NOT") is not None
        tree = self._test(left)
        if tree is None:
            if is_negated:
                raise self._unexpected("BETWEEN, IN or LIKE")
            return left
        return _not(tree) if is_negated else tree

    def _test(self, left: Evaluate) -> Evaluate | None:
        if self._take("keyword", "BETWEEN"):
            low = self._sum()
            self._need("keyword", "AND")
            return _between(left, low, self._sum())
        if self._take("keyword", "IN"):
            return _in(left, self._values())
        if self._take("keyword", "LIKE"):
            pattern = _unquoted(self._need("string"))
            escape = ""
            if self._take("keyword", "ESCAPE"):
                escape = _unquoted(self._need("string"))
                if len(escape) != 1:
                    raise SelectorError("ESCAPE is followed by one character")
            return _like(left, self._pattern(pattern, escape))
        return None

    def _pattern(self, pattern: str, escape: str) -> Like:
        try:
            like = Like(pattern, escape)
        except ValueError as error:
            raise SelectorError(str(error)) from None
        self._searches += like.is_search
        if self._searches > MAX_SEARCHES:
            raise SelectorError(f"more than {MAX_SEARCHES} LIKEs with several %; make it simpler")
        self._costly += like.is_costly
        if self._costly > MAX_COSTLY:
            raise SelectorError(f"more than {MAX_COSTLY} LIKEs with _ behind a %; make it simpler")
        return like

    def _values(self) -> frozenset[str]:
        self._need("operator", "(")
        values = [_unquoted(self._need("string"))]
        while self._take("operator", ","):
            values.append(_unquoted(self._need("string")))
        self._need("operator", ")")
        return frozenset(values)

    def _sum(self) -> Evaluate:
        first = self._product()
        others: list[tuple[str, Evaluate]] = []
        while (name := self._take("operator", "+", "-")) is not None:
            others.append((name, self._product()))
        return _arithmetic(first, others) if others else first

    def _product(self) -> Evaluate:
        first = self._factor()
        others: list[tuple[str, Evaluate]] = []
        while (name := self._take("operator", "*", "/")) is not None:
            others.append((name, self._factor()))
        return _arithmetic(first, others) if others else first

    def _factor(self) -> Evaluate:
        is_negative = False
        signs = 0
        while (sign := self._take("operator", "+", "-")) is not None:
            is_negative ^= sign == "-"
            signs += 1
        tree = self._primary()
        return _negative(tree) if is_negative else tree

    def _primary(self) -> Evaluate:
        if self._take("operator", "("):
            tree = self._or()
            self._need("operator", ")")
            return tree
        literal: object
        if (word := self._take("string")) is not None:
            literal = _unquoted(word)
        elif (word := self._take("number")) is not None:
            literal = _number(word)
        elif (word := self._take("keyword", "TRUE", "FALSE")) is not None:
            literal = word == "TRUE"
        else:
            name = self._need("name")
            return lambda lookup: lookup(name)
        return lambda _: literal


def _unquoted(word: str) -> str:
    return word[1:-1].replace("''", "'")


def _number(word: str) -> int | float:
    text = word.rstrip("lL")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text.isdigit() and len(text) < 400:
        is_octal = len(text) > 1 and text[0] == "0" and set(text) <= set("01234567")
        return int(text, 8) if is_octal else int(text)
    try:
        return float(text.rstrip("fFdD"))
    except ValueError:
        raise SelectorError(f"'{word}' is no number") from None


class Selector:
    """A compiled selector."""

    __slots__ = ("evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text = text
        self.evaluate = evaluate  # true, false, or unknown

    def matches(self, message: Message) -> bool:
        return self.evaluate(Fields(message)) is True


def compile_selector(text: str) -> Selector:
    """Raises SelectorError. An empty selector matches everything."""
    if len(text) > MAX_SELECTOR_CHARACTERS:
        raise SelectorError(f"longer than {MAX_SELECTOR_CHARACTERS} characters")
    if not text.strip():
        return Selector(text, lambda _: True)
    return Selector(text, Parser(text).parse())


# --- what names mean


class Fields:
    """A message's properties and header fields, by the names that selectors use."""

    __slots__ = ("_headers", "_message")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._headers: dict[str, Value] | None = None

    def __call__(self, name: str) -> object:
        read = FIELDS.get(name)
        if read is not None:
            return _plain(read(self._message))
        if self._headers is None:  # a selector may ask a thousand times
            self._headers = self._message.properties.header_map()
        return _plain(self._headers.get(HEADER_FIELDS.get(name, name)))


def _plain(value: object) -> object:
    match value:
        case datetime():
            return int(value.timestamp() * 1000)
        case UUID():
            return f"urn:uuid:{value}"
    return value


def _priority(message: Message) -> object:
    return 4 if message.priority is None else message.priority


HEADER_FIELDS: Final = {"amqp.to": "x-to", "amqp.group_sequence": "x-group-sequence"}
FIELDS: Final[dict[str, Callable[[Message], object]]] = {
    "JMSMessageID": lambda message: message.properties.message_id,
    "JMSCorrelationID": lambda message: message.properties.correlation_id,
    "JMSType": lambda message: message.properties.subject,
    "JMSTimestamp": lambda message: message.properties.created_at,
    "JMSPriority": _priority,
    "JMSDeliveryMode": lambda m: "PERSISTENT" if m.durable else "NON_PERSISTENT",
    "amqp.durable": lambda message: message.durable,
    "amqp.priority": _priority,
    "amqp.message_id": lambda message: message.properties.message_id,
    "amqp.user_id": lambda message: message.properties.user_id,
    "amqp.subject": lambda message: message.properties.subject,
    "amqp.reply_to": lambda message: message.properties.reply_to,
    "amqp.correlation_id": lambda message: message.properties.correlation_id,
    "amqp.content_type": lambda message: message.properties.content_type,
    "amqp.content_encoding": lambda message: message.properties.content_encoding,
    "amqp.creation_time": lambda message: message.properties.created_at,
    "amqp.group_id": lambda message: message.properties.group_id,
}
