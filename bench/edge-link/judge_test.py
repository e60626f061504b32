"""What the judge must tell apart."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import judge

STAMP = "2026-01-01T00:00:00.000Z"


def text(value: str, path: str = "a.b", stamp: str = STAMP, context: str = "c") -> str:
    """A delta with this JSON text as its value."""
    return (
        f'{{"context":"{context}","updates":[{{"$source":"s","timestamp":"{stamp}",'
        f'"values":[{{"path":"{path}","value":{value}}}]}}]}}'
    )


def verdict(offered: list[str], received: list[str], times: bool = True) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("offered", "received", "sent")]
        files[0].write_text("\n".join(offered))
        files[1].write_text("\n".join(f'{{"t":{1000 + 10 * n},"delta":{one}}}' for n, one in enumerate(received)))
        files[2].write_text("\n".join(json.dumps({"i": line, "t": 1000}) for line in range(len(offered))))
        return judge.judge(files[0], files[1], files[2] if times else None)


class Exactness(unittest.TestCase):
    def same(self, one: str, other: str) -> bool:
        report = verdict([text(one)], [text(other)])
        self.assertEqual(report["arrived"] + report["wrong"], 1)
        self.assertEqual(report["missing"], report["wrong"])
        return report["arrived"] == 1

    def test_numbers_are_the_same_to_the_last_bit(self) -> None:
        self.assertTrue(self.same("0.1", "1e-1"))
        self.assertTrue(self.same("1", "1.0"))
        self.assertTrue(self.same("1e21", "1000000000000000000000"))
        self.assertFalse(self.same("0.1", "0.10000000000000002"))
        self.assertFalse(self.same("9007199254740993", "9007199254740992"))
        self.assertFalse(self.same("-0.0", "0"))
        self.assertTrue(self.same("-0", "-0.0"))

    def test_the_kind_of_a_value_counts(self) -> None:
        self.assertFalse(self.same("1", '"1"'))
        self.assertFalse(self.same("1", "true"))
        self.assertFalse(self.same("0", "null"))
        self.assertFalse(self.same("[]", "{}"))

    def test_keys_are_in_order(self) -> None:
        self.assertTrue(self.same('{"a":1,"b":[2]}', '{"a":1,"b":[2]}'))
        self.assertFalse(self.same('{"a":1,"b":2}', '{"b":2,"a":1}'))


class Counting(unittest.TestCase):
    def test_what_does_not_come_is_missing(self) -> None:
        report = verdict([text("1"), text("2", path=""), text("3", path="x")], [text("1")])
        self.assertEqual((report["arrived"], report["missing"], report["missing_empty_path"]), (1, 2, 1))
        self.assertEqual(report["arrived_percent_of_accepted"], 50)

    def test_a_value_that_comes_twice_is_a_duplicate(self) -> None:
        report = verdict([text("1"), text("2")], [text("1"), text("1"), text("2")])
        self.assertEqual((report["arrived"], report["duplicates"], report["wrong"]), (2, 1, 0))

    def test_equal_values_of_one_moment_come_as_often_as_they_were_offered(self) -> None:
        report = verdict([text("1"), text("1")], [text("1")])
        self.assertEqual((report["arrived"], report["missing"], report["missing_repeats"]), (1, 1, 1))

    def test_a_wrong_value_does_not_stand_for_the_right_one(self) -> None:
        report = verdict([text("1")], [text("7"), text("1")])
        self.assertEqual((report["arrived"], report["wrong"], report["missing"]), (1, 1, 0))

    def test_what_nobody_offered_is_unknown(self) -> None:
        report = verdict([text("1")], [text("1", path="z")])
        self.assertEqual((report["unknown"], report["missing"]), (1, 1))

    def test_an_older_value_after_a_newer_one_is_stale(self) -> None:
        stamps = [f"2026-01-01T00:00:0{second}.000Z" for second in range(3)]
        offered = [text(str(number), stamp=stamp) for number, stamp in enumerate(stamps)]
        report = verdict(offered, [offered[0], offered[2], offered[1]])
        self.assertEqual((report["arrived"], report["stale"]), (3, 1))

    def test_lateness_is_from_the_hand_over(self) -> None:
        report = verdict([text("1"), text("2", path="x")], [text("1"), text("2", path="x")])
        self.assertEqual((report["latency_p50_ms"], report["latency_max_ms"]), (0, 10))

    def test_a_source_that_the_sink_names_is_found(self) -> None:
        offered = text("1").replace('"$source":"s",', "")
        report = verdict([offered], [text("1")])
        self.assertEqual((report["arrived"], report["unknown"]), (1, 0))


if __name__ == "__main__":
    unittest.main()
