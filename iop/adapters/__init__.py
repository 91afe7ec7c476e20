"""The Twisted plugin package of adapters: one file an adapter, here or in any package that extends this path."""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
