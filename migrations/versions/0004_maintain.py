"""Views say what is kept beside them. Those that there are keep what their operators need."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("views", sa.Column("maintain", sa.Text(), nullable=False, server_default="auto"))


def downgrade() -> None:
    op.drop_column("views", "maintain")
