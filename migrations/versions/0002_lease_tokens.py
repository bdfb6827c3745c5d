"""Leases have a token that grows with each acquisition, so that a holder which was away for too long is recognized."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nobody may be at work during a migration, so the leases that there are belong to processes that died.
    op.drop_table("leases")
    _create(sa.Column("token", sa.BigInteger(), nullable=False))


def downgrade() -> None:
    op.drop_table("leases")
    _create()


def _create(*more: sa.Column) -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        *more,
        sa.Column("acquired_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
