"""Views say whether a read of old rows refreshes them first. Those that there are do not."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("views", sa.Column("refresh_on_read", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("views", "refresh_on_read")
