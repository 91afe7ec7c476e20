"""Which hosts are addresses, which only this machine reaches, and where no backend may be."""

import pytest

from iop.addresses import address_of, host_port, is_loopback, is_never_backend


@pytest.mark.parametrize(("host", "is_it"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
    ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("edge", False), ("127.example", False), ("", False)])
def test_loopback_is_what_no_other_machine_reaches(host, is_it):
    assert is_loopback(host) is is_it


@pytest.mark.parametrize(("host", "is_it"), [
    ("127.0.0.1", False), ("10.1.2.3", False), ("::1", False), ("8.8.8.8", False), ("169.254.169.254", True),
    ("fe80::1%eth0", True), ("fd00:ec2::254", True), ("0.0.0.0", True), ("224.0.0.1", True), ("::ffff:169.254.0.1", True)])
def test_addresses_where_no_backend_may_be(host, is_it):
    assert is_never_backend(address_of(host)) is is_it


@pytest.mark.parametrize("host", ["", "edge", "127.1", "1.2.3.4.5", "fe80::x"])
def test_what_is_no_address_is_a_name(host):
    assert address_of(host) is None


def test_a_port_stands_behind_the_brackets_of_an_address_with_colons():
    assert (host_port("edge", 1), host_port("::1", 1)) == ("edge:1", "[::1]:1")
