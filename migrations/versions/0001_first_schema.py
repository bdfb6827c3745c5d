"""The first schema: tables, ledger, transactions, views and what they read, operations, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tables",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("delta_id", sa.Text()),
        sa.Column("log_location", sa.Text()),
        sa.Column("key", sa.JSON(), nullable=False),
        sa.Column("references", sa.JSON(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("first_version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tables"),
        sa.UniqueConstraint("name_key", name="uq_tables_name_key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "ledger",
        sa.Column("table_id", identity, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("timestamp", moment, nullable=False),
        sa.Column("transaction_id", sa.Text()),
        sa.Column("operation", sa.Text()),
        sa.Column("batch", sa.BigInteger()),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_ledger"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_ledger_table_id_tables", ondelete="CASCADE"),
    )
    op.create_index("ix_ledger_table_id_timestamp", "ledger", ["table_id", "timestamp"])
    op.create_table(
        "transactions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("statements", sa.JSON(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("timestamp", moment),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_transactions"),
    )
    op.create_index("ix_transactions_state", "transactions", ["state"])
    op.create_table(
        "views",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), nullable=False),
        sa.Column("refresh_policy", sa.Text(), nullable=False),
        sa.Column("policy", sa.Integer(), nullable=False),
        sa.Column("propagate_every", sa.Text()),
        sa.Column("refresh_every", sa.Text()),
        sa.Column("target_lag", sa.Text()),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("table_id", identity, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("problem", sa.Text()),
        sa.Column("shown", sa.Text()),
        sa.Column("propagated", sa.Text()),
        sa.Column("applied_batch", sa.BigInteger(), nullable=False),
        sa.Column("propagated_batch", sa.BigInteger(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("updated_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_views"),
        sa.UniqueConstraint("name_key", name="uq_views_name_key"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_views_table_id_tables"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_views_table_id", "views", ["table_id"])
    op.create_table(
        "view_dependencies",
        sa.Column("view_id", identity, nullable=False),
        sa.Column("table_id", identity, nullable=False),
        sa.PrimaryKeyConstraint("view_id", "table_id", name="pk_view_dependencies"),
        sa.ForeignKeyConstraint(
            ["view_id"], ["views.id"], name="fk_view_dependencies_view_id_views", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_view_dependencies_table_id_tables"),
    )
    op.create_index("ix_view_dependencies_table_id", "view_dependencies", ["table_id"])
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("view_id", identity),
        sa.Column("view", sa.Text()),
        sa.Column("view_key", sa.Text()),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("from_cut", sa.Text()),
        sa.Column("to_cut", sa.Text()),
        sa.Column("rows_read", sa.BigInteger(), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=False),
        sa.Column("rows_inserted", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("strategy", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("finished_at", moment),
        sa.Column("requested_by", sa.Text()),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
        sa.ForeignKeyConstraint(["view_id"], ["views.id"], name="fk_operations_view_id_views", ondelete="SET NULL"),
    )
    op.create_index("ix_operations_view_id", "operations", ["view_id"])
    op.create_index("ix_operations_started_at", "operations", ["started_at"])
    op.create_index("ix_operations_view_key_started_at", "operations", ["view_key", "started_at"])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("acquired_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def downgrade() -> None:
    for table in ("leases", "operations", "view_dependencies", "views", "transactions", "ledger", "tables"):
        op.drop_table(table)
