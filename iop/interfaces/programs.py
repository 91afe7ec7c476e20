"""Programs: who starts them, and what is told of them."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class ISpawner(Interface):
    """Starts a program in a session of its own and ends all of it."""

    def spawn(program, receiver):
        """Start a SpawnRequest (iop.spawning); returns an IProgram at once; a missing program is told to the receiver."""

    def take_up(run_id, attempt, receiver, offset):
        """An IProgram for one that an earlier start of this node began, its output told from `offset` of its journal on.

        One that has ended, or whose supervisor is gone, is told to the receiver like any other ending.
        """

    def survivors():
        """A Deferred of {(run_id, attempt)}: all that an earlier start of this node began and that take_up() knows."""

    def discard(run_id, attempt):
        """End a survivor that nobody wants, and remove what is kept of it; a Deferred that fires when that is done."""

    def forget(run_id):
        """Remove what is kept of the programs of a run, whose ending is safe elsewhere, and end what runs nevertheless; a
        Deferred."""

    def kill_all():
        """KILL whatever still runs; a Deferred that fires when all of it has ended."""


class IProgram(Interface):
    """One program under way."""

    pid = Attribute("int, or 0 when it did not start.")

    def write(data):
        """Bytes for its standard input."""

    def close_input():
        """End of its standard input."""

    def stop():
        """INT, TERM, KILL to its group with the times of the request, until none is left; idempotent."""

    def pause():
        """Tell no more output; its supervisor keeps what it can and then lets it block on its pipes."""

    def resume():
        """Tell it again."""

    def kept(offset):
        """The output up to this place of its journal is safe elsewhere: the journal need not hold it any more."""


class IProgramReceiver(Interface):
    """What a program does, told in order: started or failed, output, ended."""

    def program_started(pid):
        """It runs."""

    def output_received(channel, data, offset):
        """Bytes of standard output or error (CHANNEL_STDOUT, CHANNEL_STDERR), and the place in its journal behind them."""

    def program_ended(ending):
        """A ProgramEnding (iop.spawning): exit code, signal, error, steps, processes left. Called once, last, always."""
