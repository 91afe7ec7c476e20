"""Fakes made of real parts, for the tests of every room and of whoever writes an adapter."""
