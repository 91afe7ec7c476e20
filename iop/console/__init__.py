"""The machinery of the SSH console: portal, line editing, rendering. Knows no role."""
