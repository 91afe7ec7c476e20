"""The machinery of HTTP faces: route table, JSON, errors to status, Server-Sent Events. Knows no role."""
