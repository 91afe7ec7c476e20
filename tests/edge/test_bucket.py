from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iop.edge.bucket import Bucket


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 20)), max_size=40))
def test_a_bucket_never_gives_more_than_its_rate_and_one_filling(steps: list[tuple[float, float]]) -> None:
    bucket, now, taken = Bucket(10, 0.0), 0.0, 0.0
    for wait, amount in steps:
        now += wait
        if bucket.level(now) >= amount:
            bucket.take(amount, now)
            taken += amount
        assert bucket.level(now) <= 10
    assert taken <= 10 + now * 10 / 60 + 1e-6
