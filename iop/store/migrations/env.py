"""How Alembic runs here: in the connection and transaction that iop.store.migrate hands over, never by itself."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
