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
    op.drop_column("views", "replacement_batch")
