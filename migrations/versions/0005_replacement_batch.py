"""A differential batch may hold the whole view. Those that there are hold changes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("views", sa.Column("replacement_batch", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    waiting = op.get_bind().execute(sa.text("SELECT name FROM views WHERE replacement_batch > applied_batch")).scalars()
    if names := ", ".join(sorted(waiting)):
        raise RuntimeError(f"An earlier version would add the pending batches of {names} to them. Refresh these first.")
    op.drop_column("views", "replacement_batch")
