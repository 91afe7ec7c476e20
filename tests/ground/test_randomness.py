"""Random bytes in blocks: nobody is given those of another, not even a forked child."""

import os

from iop.randomness import BLOCK_BYTES, RandomBytes


def test_no_bytes_are_given_twice():
    source = RandomBytes()
    taken = [source.take(10) for _ in range(2 * BLOCK_BYTES // 10)]
    assert len(set(taken)) == len(taken) and {len(item) for item in taken} == {10}


def test_a_forked_child_draws_its_own():
    source = RandomBytes()
    source.take(8)
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, source.take(16))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(here, 16) != source.take(16)
    os.close(here)
    os.close(there)
