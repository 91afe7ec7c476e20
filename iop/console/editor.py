"""Line editing without a terminal: bytes become keys, keys change a line, a line becomes what to draw. Pure."""

from __future__ import annotations

import codecs
import re

from iop.rendering import cells, safe_line

MOST_HISTORY = 500
LONGEST = 65536   # characters

# What terminals send for keys (xterm, VT220, linux console), without the leading ESC.
_SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "[H": "home", "[F": "end",
    "OA": "up", "OB": "down", "OC": "right", "OD": "left", "OH": "home", "OF": "end",
    "[1~": "home", "[7~": "home", "[4~": "end", "[8~": "end", "[3~": "delete",
    "[1;5C": "word-right", "[1;5D": "word-left", "b": "word-left", "f": "word-right",
}
_CONTROLS = {
    "\x01": "home", "\x02": "left", "\x03": "interrupt", "\x04": "eof", "\x05": "end", "\x06": "right", "\x08": "backspace",
    "\t": "complete", "\n": "enter", "\x0b": "kill", "\x0c": "clear", "\r": "enter", "\x0e": "down", "\x10": "up",
    "\x15": "kill-left", "\x17": "kill-word", "\x7f": "backspace",
}
_SEQUENCE = re.compile(r"\[[0-9;?]*[@-~]|O.|[^\[O]")


class KeyReader:
    """Bytes from a terminal to keys: a printable character, or a name of several letters."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left = ""

    def feed(self, data: bytes) -> list[str]:
        """The keys in `data`; what is half a sequence waits for the rest."""
        text = self._left + self._decode(data)
        self._left = ""
        keys: list[str] = []
        at = 0
        while at < len(text):
            character = text[at]
            at += 1
            if character == "\x1b":
                match = _SEQUENCE.match(text, at)
                if match is None:
                    self._left = text[at - 1:] if len(text) - at < 32 else ""
                    break
                at = match.end()
                keys.append(_SEQUENCES.get(match[0], ""))
            elif character in _CONTROLS:
                keys.append("" if character == "\n" and text[at - 2:at - 1] == "\r" else _CONTROLS[character])
            elif character.isprintable():
                keys.append(character)
        return [key for key in keys if key]


class LineEditor:
    """One line being typed, and the lines before it."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.text = ""
        self.cursor = 0
        self.history: list[str] = []
        self._place = 0          # in the history; its length: the line being typed
        self._draft = ""         # that line, while an earlier one is shown
        self._edits = {
            "left": self._left, "right": self._right, "home": self._home, "end": self._end,
            "up": self._up, "down": self._down, "backspace": self._backspace, "delete": self._delete,
            "kill": self._kill, "kill-left": self._kill_left, "kill-word": self._kill_word,
            "word-left": self._word_left, "word-right": self._word_right,
        }

    def press(self, key: str) -> str:
        """Change the line by a key; returns the key when it asks for more than that (enter, complete, ...), else ''."""
        if len(key) == 1:
            self.insert(key)
        elif key == "eof" and self.text:
            self._delete()
        elif key in self._edits:
            self._edits[key]()
        else:
            return key
        return ""

    def insert(self, text: str) -> None:
        """Text at the cursor."""
        text = text[:LONGEST - len(self.text)]
        self._set(self.text[:self.cursor] + text + self.text[self.cursor:], self.cursor + len(text))

    def take(self) -> str:
        """The line, which is then in the history, and a new one begins."""
        line = self.text
        if line.strip() and line not in self.history[-1:]:
            self.history = [*self.history, line][-MOST_HISTORY:]
        self.reset()
        return line

    def reset(self) -> None:
        self._set("", 0)
        self._place, self._draft = len(self.history), ""

    def draw(self, width: int) -> str:
        """The sequences that show the line in one row of `width` cells, whatever stood there; longer ones scroll."""
        room = max(width - cells(self.prompt) - 1, 1)
        shown = [safe_line(character) for character in self.text]
        start = self.cursor
        taken = 0
        while start and taken + cells(shown[start - 1]) <= room:
            start -= 1
            taken += cells(shown[start])
        end, used = self.cursor, taken
        while end < len(shown) and used + cells(shown[end]) <= room:
            used += cells(shown[end])
            end += 1
        back = used - taken
        return f"\r{self.prompt}{''.join(shown[start:end])}\x1b[K" + (f"\x1b[{back}D" if back else "")

    def _set(self, text: str, cursor: int) -> None:
        self.text, self.cursor = text, cursor

    def _left(self) -> None:
        self.cursor = max(self.cursor - 1, 0)

    def _right(self) -> None:
        self.cursor = min(self.cursor + 1, len(self.text))

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _up(self) -> None:
        self._show(self._place - 1)

    def _down(self) -> None:
        self._show(self._place + 1)

    def _show(self, place: int) -> None:
        if not 0 <= place <= len(self.history):
            return
        if self._place == len(self.history):
            self._draft = self.text
        self._place = place
        line = self.history[place] if place < len(self.history) else self._draft
        self._set(line, len(line))

    def _backspace(self) -> None:
        if self.cursor:
            self._set(self.text[:self.cursor - 1] + self.text[self.cursor:], self.cursor - 1)

    def _delete(self) -> None:
        self._set(self.text[:self.cursor] + self.text[self.cursor + 1:], self.cursor)

    def _kill(self) -> None:
        self._set(self.text[:self.cursor], self.cursor)

    def _kill_left(self) -> None:
        self._set(self.text[self.cursor:], 0)

    def _kill_word(self) -> None:
        start = self._word_start()
        self._set(self.text[:start] + self.text[self.cursor:], start)

    def _word_left(self) -> None:
        self.cursor = self._word_start()

    def _word_right(self) -> None:
        rest = self.text[self.cursor:]
        self.cursor += len(rest) - len(rest.lstrip(" ").lstrip("".join(set(rest) - {" "})))

    def _word_start(self) -> int:
        return self.text[:self.cursor].rstrip(" ").rfind(" ") + 1
